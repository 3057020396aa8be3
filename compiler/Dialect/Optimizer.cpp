// The optimizer's ops: verification and memory effects.
#include "Support.h"
#include "plan/Optimizers.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace mlir;
using namespace xfc;

LogicalResult SquareSumOp::verify() {
  if (getTensors().empty())
    return emitOpError("needs at least one tensor");
  if (getType().getRank() != 1 || getType().getDimSize(0) < 1)
    return emitOpError("result must have one dimension and at least one element, found ") << getType();
  return success();
}

LogicalResult ClipFactorOp::verify() {
  for (Value sums : getSums())
    if (cast<RankedTensorType>(sums.getType()).getRank() != 1)
      return emitOpError("sums must have one dimension, found ") << sums.getType();
  return success();
}

// The rule of an op, which must be one of those whose steps are taken element by element, or one of the others. Null,
// with a diagnostic, if it is not.
static const Optimizer *ruleOf(Operation *op, StringRef name, bool elementwise) {
  const Optimizer *optimizer = findRule(name);
  if (optimizer && optimizer->elementwise == elementwise)
    return optimizer;
  llvm::SetVector<StringRef> rules;
  for (const Optimizer &known : optimizers())
    if (known.elementwise == elementwise)
      rules.insert(known.rule);
  auto error =
      optimizer ? op->emitOpError("does not take a step by the rule \"") : op->emitOpError("there is no rule \"");
  error << name << "\"; expected one of " << llvm::join(rules, ", ");
  return nullptr;
}

static LogicalResult verifyHyper(Operation *op, RankedTensorType hyper, const Optimizer &optimizer) {
  const auto scalars = static_cast<int64_t>(optimizer.hyper.size());
  if (hyper.getShape() != ArrayRef<int64_t>{scalars})
    return op->emitOpError("hyper must have ") << scalars << " elements, found " << hyper;
  return success();
}

static int64_t hyperIndex(StringRef rule, StringRef name) {
  const auto &hyper = findRule(rule)->hyper;
  const auto found = llvm::find_if(
      hyper, [&](const Optimizer::Hyperparameter &known) { return known.name == std::string_view(name); });
  assert(found != hyper.end() && "the optimizer has no such hyperparameter");
  return found - hyper.begin();
}

LogicalResult OptimizeOp::verify() {
  const Optimizer *optimizer = ruleOf(*this, getRule(), /*elementwise=*/true);
  if (!optimizer)
    return failure();
  const size_t n = getParameters().size(), states = optimizer->states.size();
  if (n == 0)
    return emitOpError("needs at least one parameter");
  if (getGradients().size() != n || getStates().size() != states * n || getNumResults() != (1 + states) * n)
    return emitOpError("with ") << n << " parameters needs " << n << " gradients, " << states * n << " states and "
                                << (1 + states) * n << " results, found " << getGradients().size() << ", "
                                << getStates().size() << " and " << getNumResults();
  const Type narrow = BFloat16Type::get(getContext());
  auto isOf = [&](Type type, RankedTensorType parameter, bool state) {
    return type == parameter || (state && parameter.getElementType().isF32() && type == parameter.clone(narrow));
  };
  const size_t narrowStates = llvm::count_if(optimizer->states, mayBeNarrow) * n;
  for (auto [values, before] : {std::pair(ValueRange(getGradients()), size_t(0)),
                                {ValueRange(getStates()), narrowStates},
                                {ValueRange(getUpdated()).take_front(n), size_t(0)},
                                {ValueRange(getUpdated()).drop_front(n), narrowStates}})
    for (auto [i, value] : llvm::enumerate(values))
      if (auto parameter = cast<RankedTensorType>(getParameters()[i % n].getType());
          !isOf(value.getType(), parameter, i < before))
        return emitOpError("every operand and result of parameter ")
               << i % n << " must be " << parameter << ", found " << value.getType();
  for (auto [state, updated] : llvm::zip_equal(getStates(), getUpdated().drop_front(n)))
    if (state.getType() != updated.getType())
      return emitOpError("a state is ") << state.getType() << ", its new value " << updated.getType();
  if (getCompute() && !getPacks())
    return emitOpError("rounds packed weights, but packs none");
  return verifyHyper(*this, getHyper().getType(), *optimizer);
}

// Each new parameter and state overwrites the old one.
int64_t OptimizeOp::getInPlaceOperand(unsigned result) {
  const unsigned n = getParameters().size();
  return result < n ? getParameters().getBeginOperandIndex() + result : getStates().getBeginOperandIndex() + result - n;
}

int64_t OptimizeOp::getHyperIndex(StringRef name) { return hyperIndex(getRule(), name); }

void OptimizeOp::getEffects(SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (getPacks())
    effects.emplace_back(MemoryEffects::Write::get(), PackedWeights::get());
}

//===--------------------------------------------------------------------------------------------------------===//
// Rules that are not elementwise
//===--------------------------------------------------------------------------------------------------------===//

// A part has at least 32 rows, so that the partial sums of columns are small beside the tensor, and 16384 elements; and
// there are at most 64, so that adding them up takes little beside a part.
MatrixForm::MatrixForm(RankedTensorType tensor)
    : factored(tensor.getRank() >= 2), columns(factored ? tensor.getShape().back() : 1) {
  const int64_t elements = tensor.getNumElements(), width = std::max<int64_t>(columns, 1);
  rows = elements / width;
  auto shares = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  per = std::max({int64_t(32), shares(16384, width), shares(rows, 64)});
  parts = std::max(int64_t(1), shares(rows, per));
}

void PartedTensors::add(const MatrixForm &form, int64_t ofChunks) {
  auto last = llvm::find_if(llvm::reverse(tensors), [](const xfc_parted_tensor &tensor) { return tensor.matrix >= 0; });
  const int64_t matrix = last == tensors.rend() ? 0 : last->matrix + 1;
  tensors.push_back({chunks, form.rows, form.columns, form.per, form.parts, form.factored ? matrix : -1, 0});
  chunks += ofChunks;
}

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static MatrixForm formOf(Value value) { return MatrixForm(typeOf(value)); }

// The tensors, each cut into the parts of its rows.
static PartedTensors inParts(ValueRange tensors) {
  PartedTensors all;
  for (Value tensor : tensors)
    all.add(formOf(tensor), formOf(tensor).parts);
  return all;
}

// The matrices among the tensors.
static SmallVector<Value> matricesOf(ValueRange tensors) {
  return llvm::filter_to_vector(tensors, [](Value tensor) { return formOf(tensor).factored; });
}

// Checks the number of values and their types, the i-th of which is expected(i).
static LogicalResult verifyEach(Operation *op, StringRef what, ValueRange values, size_t count,
                                llvm::function_ref<Type(size_t)> expected) {
  if (values.size() != count)
    return op->emitOpError("needs ") << count << " " << what << ", found " << values.size();
  for (size_t i = 0; i < count; ++i)
    if (values[i].getType() != expected(i))
      return op->emitOpError() << what << " " << i << " must be " << expected(i) << ", found " << values[i].getType();
  return success();
}

namespace {

// The types that belong to the tensors of an op.
struct TypesOf {
  explicit TypesOf(ValueRange tensors) : tensors(tensors), matrices(matricesOf(tensors)) {}
  ValueRange tensors;
  SmallVector<Value> matrices;

  Type element() const { return typeOf(tensors.front()).getElementType(); }
  Type f64() const { return Float64Type::get(element().getContext()); }
  Type tensor(size_t i) const { return tensors[i].getType(); }
  Type rows(size_t i) const {
    const MatrixForm form = formOf(tensors[i]);
    return form.factored ? RankedTensorType::get(typeOf(tensors[i]).getShape().drop_back(), element()) : tensor(i);
  }
  Type parts(size_t i) const { return RankedTensorType::get({formOf(tensors[i]).parts}, f64()); }
  // Of the i-th matrix.
  Type columnSums(size_t i) const {
    const MatrixForm form = formOf(matrices[i]);
    return RankedTensorType::get({form.parts, form.columns}, f64());
  }
  Type columns(size_t i) const { return RankedTensorType::get({formOf(matrices[i]).columns}, element()); }
};

} // namespace

LogicalResult RowMomentsOp::verify() {
  const Optimizer *optimizer = ruleOf(*this, getRule(), /*elementwise=*/false);
  if (!optimizer || failed(verifyHyper(*this, getHyper().getType(), *optimizer)))
    return failure();
  if (getParameters().empty())
    return emitOpError("needs at least one parameter");
  const TypesOf types(getParameters());
  const size_t n = getParameters().size(), m = types.matrices.size();
  if (getNumResults() != 2 * n + m)
    return emitOpError("needs ") << 2 * n + m << " results, found " << getNumResults();
  auto tensor = [&](size_t i) { return types.tensor(i); };
  auto rows = [&](size_t i) { return types.rows(i); };
  return success(succeeded(verifyEach(*this, "gradients", getGradients(), n, tensor)) &&
                 succeeded(verifyEach(*this, "means of rows", getRows(), n, rows)) &&
                 succeeded(verifyEach(*this, "new means of rows", getResultSegment(0), n, rows)) &&
                 succeeded(verifyEach(*this, "sums of squares", getResultSegment(1), n,
                                      [&](size_t i) { return types.parts(i); })) &&
                 succeeded(verifyEach(*this, "sums of columns", getResultSegment(2), m,
                                      [&](size_t i) { return types.columnSums(i); })));
}
SmallVector<unsigned> RowMomentsOp::getResultSegments() {
  const auto n = static_cast<unsigned>(getParameters().size());
  return {n, n, static_cast<unsigned>(matricesOf(getParameters()).size())};
}
PartedTensors RowMomentsOp::getPartedTensors() { return inParts(getParameters()); }
int64_t RowMomentsOp::getInPlaceOperand(unsigned result) {
  return result < getRows().size() ? int64_t(getRows().getBeginOperandIndex() + result) : -1;
}
int64_t RowMomentsOp::getHyperIndex(StringRef name) { return hyperIndex(getRule(), name); }

// The op sees no tensor of its matrices' shape: the rows of one are the elements of its means of rows.
static MatrixForm formOf(Value rows, Value columns) {
  return MatrixForm(RankedTensorType::get({typeOf(rows).getNumElements(), typeOf(columns).getNumElements()},
                                          typeOf(rows).getElementType()));
}
LogicalResult ColumnMomentsOp::verify() {
  const Optimizer *optimizer = ruleOf(*this, getRule(), /*elementwise=*/false);
  if (!optimizer || failed(verifyHyper(*this, getHyper().getType(), *optimizer)))
    return failure();
  const size_t m = getRows().size();
  if (m == 0 || getColumns().size() != m || getNumResults() != 2 * m)
    return emitOpError("needs at least one matrix, and two results for each; found the means of ")
           << m << " matrices' rows, " << getColumns().size() << " of columns, and " << getNumResults() << " results";
  auto columns = [&](size_t i) { return getColumns()[i].getType(); };
  return success(succeeded(verifyEach(*this, "sums of columns", getColumnSums(), m,
                                      [&](size_t i) -> Type {
                                        const MatrixForm form = formOf(getRows()[i], getColumns()[i]);
                                        return RankedTensorType::get({form.parts, form.columns},
                                                                     Float64Type::get(getContext()));
                                      })) &&
                 succeeded(verifyEach(*this, "new means of columns", getResultSegment(0), m, columns)) &&
                 succeeded(verifyEach(*this, "factors of columns", getResultSegment(1), m, columns)));
}
SmallVector<unsigned> ColumnMomentsOp::getResultSegments() {
  const auto m = static_cast<unsigned>(getRows().size());
  return {m, m};
}
PartedTensors ColumnMomentsOp::getPartedTensors() {
  PartedTensors all;
  for (auto [rows, columns] : llvm::zip_equal(getRows(), getColumns())) {
    const MatrixForm form = formOf(rows, columns);
    all.add(form, llvm::divideCeil(form.columns, columnsOfChunk));
  }
  return all;
}
int64_t ColumnMomentsOp::getInPlaceOperand(unsigned result) {
  return result < getColumns().size() ? int64_t(getColumns().getBeginOperandIndex() + result) : -1;
}
int64_t ColumnMomentsOp::getHyperIndex(StringRef name) { return hyperIndex(getRule(), name); }

LogicalResult UpdateSquaresOp::verify() {
  const Optimizer *optimizer = ruleOf(*this, getRule(), /*elementwise=*/false);
  if (!optimizer || failed(verifyHyper(*this, getHyper().getType(), *optimizer)))
    return failure();
  if (getGradients().empty())
    return emitOpError("needs at least one gradient");
  const TypesOf types(getGradients());
  const size_t n = getGradients().size();
  return success(
      succeeded(verifyEach(*this, "means of rows", getRows(), n, [&](size_t i) { return types.rows(i); })) &&
      succeeded(verifyEach(*this, "factors of columns", getFactors(), types.matrices.size(),
                           [&](size_t i) { return types.columns(i); })) &&
      succeeded(verifyEach(*this, "sums of squares", getSquares(), n, [&](size_t i) { return types.parts(i); })));
}
SmallVector<unsigned> UpdateSquaresOp::getResultSegments() { return {static_cast<unsigned>(getGradients().size())}; }
PartedTensors UpdateSquaresOp::getPartedTensors() { return inParts(getGradients()); }
int64_t UpdateSquaresOp::getInPlaceOperand(unsigned) { return -1; }
int64_t UpdateSquaresOp::getHyperIndex(StringRef name) { return hyperIndex(getRule(), name); }

LogicalResult FactoredUpdateOp::verify() {
  const Optimizer *optimizer = ruleOf(*this, getRule(), /*elementwise=*/false);
  if (!optimizer || failed(verifyHyper(*this, getHyper().getType(), *optimizer)))
    return failure();
  if (getParameters().empty())
    return emitOpError("needs at least one parameter");
  const TypesOf types(getParameters());
  const size_t n = getParameters().size(), averages = optimizer->averages ? n : 0;
  if (getNumResults() != n + averages)
    return emitOpError("needs ") << n + averages << " results, found " << getNumResults();
  auto tensor = [&](size_t i) { return types.tensor(i % n); };
  auto parts = [&](size_t i) { return types.parts(i); };
  return success(succeeded(verifyEach(*this, "gradients", getGradients(), n, tensor)) &&
                 succeeded(verifyEach(*this, "means of rows", getRows(), n, [&](size_t i) { return types.rows(i); })) &&
                 succeeded(verifyEach(*this, "factors of columns", getFactors(), types.matrices.size(),
                                      [&](size_t i) { return types.columns(i); })) &&
                 succeeded(verifyEach(*this, "sums of the parameters' squares", getParameterSquares(), n, parts)) &&
                 succeeded(verifyEach(*this, "sums of the updates' squares", getUpdateSquares(), n, parts)) &&
                 succeeded(verifyEach(*this, "averages", getAverages(), averages, tensor)) &&
                 succeeded(verifyEach(*this, "results", getUpdated(), n + averages, tensor)));
}
SmallVector<unsigned> FactoredUpdateOp::getResultSegments() {
  return {static_cast<unsigned>(getParameters().size()), static_cast<unsigned>(getAverages().size())};
}
PartedTensors FactoredUpdateOp::getPartedTensors() { return inParts(getParameters()); }
int64_t FactoredUpdateOp::getInPlaceOperand(unsigned result) {
  const auto n = static_cast<unsigned>(getParameters().size());
  return result < n ? getParameters().getBeginOperandIndex() + result
                    : getAverages().getBeginOperandIndex() + result - n;
}
int64_t FactoredUpdateOp::getHyperIndex(StringRef name) { return hyperIndex(getRule(), name); }
