// Defines what the optimizer computes.
#include "Evaluators.h"
#include "Support.h"
#include <algorithm>
#include <bit>
#include <cmath>

using namespace mlir;

namespace xfc {

// The partial sums depend on where the tensors lie in their block, but the norm does so only in its last bits. Here the
// first partial sum holds everything.
static LogicalResult evaluateOp(SquareSumOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor sums = zeros(shape, op.getType());
  for (const Tensor &tensor : operands)
    for (double value : tensor.data)
      sums.data[0] += value * value;
  results.push_back(std::move(sums));
  return success();
}

static LogicalResult evaluateOp(ClipFactorOp, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  double limit = operands[0].data[0], squares = 0;
  for (const Tensor &sums : operands.drop_front())
    for (double value : sums.data)
      squares += value;
  double norm = std::sqrt(squares);
  results.append({Tensor{{}, {limit > 0 && norm > limit ? limit / norm : 1}}, Tensor{{}, {norm}}});
  return success();
}

// Updates one element, the parameter and its states, in place, given the clipped gradient.
using Hyper = llvm::function_ref<double(StringRef)>;
using Step = void (*)(Hyper, double &parameter, double gradient, ArrayRef<double *> states);

static void adam(Hyper hyper, double &p, double g, ArrayRef<double *> states) {
  double &m = *states[0], &v = *states[1];
  g += hyper("l2") * p;
  m = hyper("beta1") * m + (1 - hyper("beta1")) * g;
  v = hyper("beta2") * v + (1 - hyper("beta2")) * g * g;
  p -= hyper("rate") * hyper("decay") * p +
       hyper("rate") * (m / hyper("correction1")) / (std::sqrt(v / hyper("correction2")) + hyper("epsilon"));
}

static void sgd(Hyper hyper, double &p, double g, ArrayRef<double *> states) {
  double &m = *states[0];
  m = hyper("momentum") * m + g + hyper("l2") * p;
  p -= hyper("rate") * m;
}

static void lion(Hyper hyper, double &p, double g, ArrayRef<double *> states) {
  double &m = *states[0];
  const double direction = hyper("beta1") * m + (1 - hyper("beta1")) * g;
  m = hyper("beta2") * m + (1 - hyper("beta2")) * g;
  p -= hyper("rate") * ((direction > 0) - (direction < 0) + hyper("decay") * p);
}

static uint32_t bitsOf(double number) { return std::bit_cast<uint32_t>(static_cast<float>(number)); }

// The random bits of an element whose states are kept in bf16.
static uint32_t randomBits(double parameter, double gradient, uint32_t salt) {
  uint32_t x = 2654435761U * bitsOf(parameter) + 2246822519U * bitsOf(gradient) + salt;
  x = (x ^ x >> 16) * 0x85ebca6bU;
  x = (x ^ x >> 13) * 0xc2b2ae35U;
  return x ^ x >> 16;
}

static double roundedAtRandom(double number, uint32_t random) {
  if (!std::isfinite(static_cast<float>(number)))
    return number;
  return std::bit_cast<float>((bitsOf(number) + random) & 0xffff0000U);
}

static const std::pair<StringRef, Step> steps[] = {{"adam", adam}, {"sgd", sgd}, {"lion", lion}};

static LogicalResult evaluateOp(OptimizeOp op, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  StringRef name = op.getRule();
  const bool averages = name.consume_back("_ema"); // a moving average of the parameters is the last state
  const auto *rule = llvm::find_if(steps, [&](const auto &step) { return step.first == name; });
  if (rule == std::end(steps))
    return op.emitOpError("the interpreter has no optimizer \"") << op.getRule() << "\"";
  auto hyper = [&](StringRef name) { return operands[0].data[op.getHyperIndex(name)]; };
  auto at = [&](OperandRange group) { return operands.slice(group.getBeginOperandIndex(), group.size()); };
  const ArrayRef<Tensor> gradients = at(op.getGradients());
  const size_t n = gradients.size(), stateCount = op.getNumStates();
  results.append(at(op.getParameters()).begin(), at(op.getParameters()).end());
  results.append(at(op.getStates()).begin(), at(op.getStates()).end());
  uint32_t salt = 668265263U * bitsOf(operands[1].data[0]);
  for (auto [i, number] : llvm::enumerate(operands[0].data))
    salt += static_cast<uint32_t>(2 * i + 1) * 3266489917U * bitsOf(number);
  SmallVector<double *> states(stateCount);
  for (size_t t = 0; t < n; ++t)
    for (size_t i = 0; i < gradients[t].data.size(); ++i) {
      const double before = results[t].data[i];
      for (size_t s = 0; s < stateCount; ++s)
        states[s] = &results[(1 + s) * n + t].data[i];
      const double gradient = operands[1].data[0] * gradients[t].data[i];
      rule->second(hyper, results[t].data[i], std::clamp(gradient, -hyper("limit"), hyper("limit")), states);
      if (averages)
        *states.back() += hyper("weight") * (results[t].data[i] - *states.back());
      for (size_t s = 0; s < stateCount; ++s)
        if (cast<RankedTensorType>(op.getStates()[s * n + t].getType()).getElementType().isBF16()) {
          const uint32_t random = randomBits(before, gradients[t].data[i], salt);
          *states[s] = roundedAtRandom(*states[s], s == 0 ? random & 0xffff : random >> 16);
        }
    }
  return success();
}

// Adafactor (Shazeer and Stern, 2018, algorithm 4, without the first moment), with the settings of fairseq: of each
// squared gradient it keeps only the means of rows and columns, whose product, divided by the mean of all, stands for
// the second moment.
namespace {

// One tensor of an op, and the op's hyperparameters.
template <typename Op> struct Factored {
  Factored(Op op, ArrayRef<Tensor> operands) : op(op), operands(operands) {}
  Op op;
  ArrayRef<Tensor> operands;

  double hyper(StringRef name) const { return operands[0].data[Op(op).getHyperIndex(name)]; }
  // The tensors of a group of operands, which may be empty.
  ArrayRef<Tensor> at(OperandRange group) const {
    return group.empty() ? ArrayRef<Tensor>() : operands.slice(group.getBeginOperandIndex(), group.size());
  }
  // An element of a gradient after clipping, by the norm and then by value.
  double clipped(double gradient) const {
    return std::clamp(operands[1].data[0] * gradient, -hyper("limit"), hyper("limit"));
  }
  double newMean(double mean, double square) const {
    return hyper("share") * (square + hyper("eps1")) + (1 - hyper("share")) * mean;
  }
  // The unscaled update of each element of a tensor. `factors` are those of its columns, or null.
  std::vector<double> updateOf(const Tensor &gradient, const Tensor &rows, const Tensor *factors) const {
    std::vector<double> update(gradient.data.size());
    const size_t columns = factors ? factors->data.size() : 1;
    for (size_t e = 0; e < update.size(); ++e)
      update[e] =
          clipped(gradient.data[e]) * (factors ? factors->data[e % columns] : 1) / std::sqrt(rows.data[e / columns]);
    return update;
  }
};

MatrixForm formOf(Value tensor) { return MatrixForm(cast<RankedTensorType>(tensor.getType())); }

// The sum of the squares in each part of the rows.
void addSquares(const MatrixForm &form, ArrayRef<double> values, Tensor &sums) {
  for (size_t e = 0; e < values.size(); ++e)
    sums.data[e / form.columns / form.per] += values[e] * values[e];
}

} // namespace

static LogicalResult evaluateOp(RowMomentsOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Factored step(op, operands);
  const size_t n = op.getParameters().size();
  for (Value result : op.getResults())
    results.push_back(zeros(shape, result.getType()));
  size_t matrix = 0;
  for (size_t t = 0; t < n; ++t) {
    const MatrixForm form = formOf(op.getParameters()[t]);
    const Tensor &gradient = step.at(op.getGradients())[t], &means = step.at(op.getRows())[t];
    Tensor *columnSums = form.factored ? &results[2 * n + matrix++] : nullptr;
    for (int64_t row = 0; row < form.rows; ++row) {
      double sum = 0;
      for (int64_t column = 0; column < form.columns; ++column) {
        const double g = step.clipped(gradient.data[row * form.columns + column]);
        sum += g * g;
        if (columnSums)
          columnSums->data[row / form.per * form.columns + column] += g * g;
      }
      results[t].data[row] = step.newMean(means.data[row], sum / static_cast<double>(form.columns));
    }
    addSquares(form, step.at(op.getParameters())[t].data, results[n + t]);
  }
  return success();
}

static LogicalResult evaluateOp(ColumnMomentsOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Factored step(op, operands);
  const size_t m = op.getRows().size();
  for (Value result : op.getResults())
    results.push_back(zeros(shape, result.getType()));
  for (size_t t = 0; t < m; ++t) {
    const std::vector<double> &rows = step.at(op.getRows())[t].data, &sums = step.at(op.getColumnSums())[t].data,
                              &means = step.at(op.getColumns())[t].data;
    double mean = 0;
    for (double row : rows)
      mean += row / static_cast<double>(rows.size());
    for (size_t column = 0; column < means.size(); ++column) {
      double sum = 0;
      for (size_t i = column; i < sums.size(); i += means.size())
        sum += sums[i];
      results[t].data[column] = step.newMean(means[column], sum / static_cast<double>(rows.size()));
      results[m + t].data[column] = std::sqrt(mean / results[t].data[column]);
    }
  }
  return success();
}

static LogicalResult evaluateOp(UpdateSquaresOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Factored step(op, operands);
  size_t matrix = 0;
  for (size_t t = 0; t < op.getGradients().size(); ++t) {
    const MatrixForm form = formOf(op.getGradients()[t]);
    const Tensor *factors = form.factored ? &step.at(op.getFactors())[matrix++] : nullptr;
    Tensor sums = zeros(shape, op.getResult(t).getType());
    addSquares(form, step.updateOf(step.at(op.getGradients())[t], step.at(op.getRows())[t], factors), sums);
    results.push_back(std::move(sums));
  }
  return success();
}

static LogicalResult evaluateOp(FactoredUpdateOp op, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Factored step(op, operands);
  const size_t n = op.getParameters().size();
  llvm::append_range(results, step.at(op.getParameters()));
  llvm::append_range(results, step.at(op.getAverages()));
  size_t matrix = 0;
  for (size_t t = 0; t < n; ++t) {
    const MatrixForm form = formOf(op.getParameters()[t]);
    const Tensor *factors = form.factored ? &step.at(op.getFactors())[matrix++] : nullptr;
    std::vector<double> &parameter = results[t].data;
    auto rootOfMean = [&](const Tensor &sums) {
      double total = 0;
      for (double sum : sums.data)
        total += sum;
      return std::sqrt(total / static_cast<double>(parameter.size()));
    };
    double rate = step.hyper("rate");
    if (step.hyper("scales") > 0)
      rate *= std::max(step.hyper("eps2"), rootOfMean(step.at(op.getParameterSquares())[t]));
    const double shrink = std::max(1.0, rootOfMean(step.at(op.getUpdateSquares())[t]) / step.hyper("clip_threshold"));
    const std::vector<double> update = step.updateOf(step.at(op.getGradients())[t], step.at(op.getRows())[t], factors);
    for (size_t e = 0; e < parameter.size(); ++e)
      parameter[e] -= rate * step.hyper("decay") * parameter[e] + rate * update[e] / shrink;
    if (!op.getAverages().empty())
      for (size_t e = 0; e < parameter.size(); ++e)
        results[n + t].data[e] += step.hyper("weight") * (parameter[e] - results[n + t].data[e]);
  }
  return success();
}

void attachOptimizerEvaluators(MLIRContext &context) {
  attachEvaluators<SquareSumOp, ClipFactorOp, OptimizeOp, RowMomentsOp, ColumnMomentsOp, UpdateSquaresOp,
                   FactoredUpdateOp>(context);
}

} // namespace xfc
