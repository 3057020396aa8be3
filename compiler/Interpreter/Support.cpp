// Implements what the evaluators share.
#include "Support.h"
#include "llvm/ADT/APFloat.h"
#include <algorithm>
#include <cmath>

using namespace mlir;

namespace xfc {

Tensor zeros(const xfc_shape &shape, Type type) {
  Tensor tensor;
  if (auto rows = dyn_cast<RowsType>(type)) {
    tensor.shape.push_back(rowsOf(shape, rows).rows);
    tensor.shape.insert(tensor.shape.end(), rows.getShape().begin(), rows.getShape().end());
  } else if (auto pairs = dyn_cast<PairsType>(type)) {
    tensor.shape = {shape.keys[pairs.getStructure()].pairs * pairs.getHeads()};
  } else {
    ArrayRef<int64_t> extents = cast<RankedTensorType>(type).getShape();
    tensor.shape.assign(extents.begin(), extents.end());
  }
  int64_t elements = 1;
  for (int64_t extent : tensor.shape)
    elements *= extent;
  tensor.data.assign(elements, 0.0);
  return tensor;
}

// Rounds to the nearest number of a narrower type, ties to even; values beyond the largest one become infinity.
static double roundTo(const llvm::fltSemantics &type, double x) {
  if (!std::isfinite(x))
    return x;
  const auto digits = static_cast<int>(llvm::APFloat::semanticsPrecision(type)),
             least = llvm::APFloat::semanticsMinExponent(type) + 1,
             most = llvm::APFloat::semanticsMaxExponent(type) + 1;
  int exponent; // of a mantissa from 0.5 to 1
  std::frexp(x, &exponent);
  const int unit = std::max(exponent, least) - digits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  return std::abs(rounded) < std::ldexp(1, most) ? rounded : std::copysign(INFINITY, x);
}
static double roundToBF16(double x) { return roundTo(llvm::APFloat::BFloat(), x); }

double rounded(double x, std::optional<ComputeType> type) {
  assert((!type || !isInteger(*type)) && "integers have factors");
  return type ? roundToBF16(x) : x;
}

Tensor rounded(Tensor operand, std::optional<ComputeType> type) {
  if (type == ComputeType::bf16)
    for (double &x : operand.data)
      x = roundToBF16(x);
  if (type && isInteger(*type))
    for (int64_t i = 0; i < operand.shape[0]; ++i) {
      double largest = 0x1p-100;
      for (int64_t f = 0; f < operand.features(); ++f)
        largest = std::max(largest, std::abs(operand.row(i)[f]));
      // The factor is an f32, as in kernels, so that both round to the same integers.
      const double factor = static_cast<float>(127 / largest);
      for (int64_t f = 0; f < operand.features(); ++f)
        operand.row(i)[f] = std::nearbyint(operand.row(i)[f] * factor) * (largest / 127);
    }
  return operand;
}

Tensor roundedWeight(Tensor weight, std::optional<ComputeType> type) {
  if (type != ComputeType::int4)
    return rounded(std::move(weight), type);
  for (int64_t i = 0; i < weight.shape[0]; ++i)
    for (int64_t begin = 0; begin < weight.features(); begin += int4Group) {
      MutableArrayRef<double> group(weight.row(i) + begin, std::min(int4Group, weight.features() - begin));
      const double highest = std::max(0x1p-100, *llvm::max_element(group)), lowest = *llvm::min_element(group);
      const double scale = roundToBF16((highest >= -lowest ? highest : lowest) / -8);
      const double factor = static_cast<float>(1 / scale);
      for (double &x : group)
        x = std::clamp(std::nearbyint(x * factor), -8.0, 7.0) * scale;
    }
  return weight;
}

double dropoutFactor(const xfc_shape &shape, double rate, int64_t id, uint32_t sentence, int64_t position,
                     int64_t feature, uint32_t headPlus1) {
  if (!shape.training || rate <= 0)
    return 1;
  const auto op = static_cast<uint32_t>(id), place = static_cast<uint32_t>(position),
             f = static_cast<uint32_t>(feature);
  const bool kept = xfc_random(shape.dropout_key, op, sentence, place, f, headPlus1) >= xfc_threshold(rate);
  return kept ? keptFactor(shape, rate) : 0;
}

double keptFactor(const xfc_shape &shape, double rate) { return shape.training ? 1 / (1 - rate) : 1; }

int64_t Pair::element(int64_t head, int64_t heads) const {
  return base * heads + head * rows * count + queryOffset * count + index;
}

void forEachPair(const xfc_shape &shape, RowSet queries, int64_t structure,
                 llvm::function_ref<void(const Pair &)> visit) {
  const xfc_rows &rows = shape.sets[static_cast<int>(queries)];
  const xfc_keys &keys = shape.keys[structure];
  for (int64_t b = 0; b < rows.sequences; ++b)
    for (int64_t i = rows.offsets[b]; i < rows.offsets[b + 1]; ++i)
      for (int64_t j = 0; j < keys.count[b]; ++j)
        visit({b, i, keys.keys[keys.begin[b] + j], j, j < keys.limit[i], rows.offsets[b + 1] - rows.offsets[b],
               keys.count[b], keys.pair_offsets[b], i - rows.offsets[b]});
}

LogicalResult evaluateRegion(const xfc_shape &shape, Region &region, ArrayRef<Tensor> arguments,
                             SmallVectorImpl<Tensor> &results) {
  llvm::DenseMap<Value, Tensor> values;
  Block &block = region.front();
  for (auto [argument, tensor] : llvm::zip_equal(block.getArguments(), arguments))
    values[argument] = tensor;
  for (Operation &op : block) {
    SmallVector<Tensor> operands, produced;
    for (Value operand : op.getOperands())
      operands.push_back(values.at(operand));
    if (op.hasTrait<OpTrait::IsTerminator>()) {
      results.append(operands.begin(), operands.end());
      return success();
    }
    auto evaluable = dyn_cast<EvaluableOpInterface>(op);
    if (!evaluable)
      return op.emitOpError("cannot be evaluated");
    if (failed(evaluable.evaluate(shape, operands, produced)))
      return failure();
    for (auto [value, tensor] : llvm::zip_equal(op.getResults(), produced)) {
      auto rows = dyn_cast<RowsType>(value.getType());
      auto type = rows ? dyn_cast<FloatType>(rows.getElementType()) : FloatType();
      if (type && type.getWidth() < 32)
        for (double &x : tensor.data)
          x = roundTo(type.getFloatSemantics(), x);
      values[value] = std::move(tensor);
    }
  }
  return failure();
}

} // namespace xfc
