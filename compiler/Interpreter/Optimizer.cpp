// Defines what the optimizer computes.
#include "Evaluators.h"
#include "Support.h"
#include <algorithm>
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
  SmallVector<double *> states(stateCount);
  for (size_t t = 0; t < n; ++t)
    for (size_t i = 0; i < gradients[t].data.size(); ++i) {
      for (size_t s = 0; s < stateCount; ++s)
        states[s] = &results[(1 + s) * n + t].data[i];
      const double gradient = operands[1].data[0] * gradients[t].data[i];
      rule->second(hyper, results[t].data[i], std::clamp(gradient, -hyper("limit"), hyper("limit")), states);
      if (averages)
        *states.back() += hyper("weight") * (results[t].data[i] - *states.back());
    }
  return success();
}

void attachOptimizerEvaluators(MLIRContext &context) {
  attachEvaluators<SquareSumOp, ClipFactorOp, OptimizeOp>(context);
}

} // namespace xfc
