// What the optimizer computes.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

// Parts are cut by the block the tensors lie in; where the cuts are moves no more than the last bits of the norm.
static LogicalResult evaluateOp(SquareSumOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor sums = zeros(shape, op.getType());
  for (const Tensor &tensor : operands)
    for (double value : tensor.data)
      sums.data[0] += value * value;
  results.push_back(std::move(sums));
  return success();
}

static LogicalResult evaluateOp(ClipFactorOp, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  double limit = operands[0].data[0], squares = 0;
  for (const Tensor &sums : operands.drop_front())
    for (double value : sums.data)
      squares += value;
  double norm = std::sqrt(squares);
  results.append({Tensor{{}, {limit > 0 && norm > limit ? limit / norm : 1}}, Tensor{{}, {norm}}});
  return success();
}

static LogicalResult evaluateOp(AdamOp op, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const std::vector<double> &hyper = operands[0].data;
  double lr = hyper[0], beta1 = hyper[1], beta2 = hyper[2], eps = hyper[3], l2 = hyper[4], decay = hyper[5],
         correction1 = hyper[6], correction2 = hyper[7], factor = operands[1].data[0];
  const size_t n = op.getParameters().size();
  SmallVector<Tensor> parameters(operands.slice(2, n)), moments1(operands.slice(2 + 2 * n, n)),
      moments2(operands.slice(2 + 3 * n, n));
  for (size_t t = 0; t < n; ++t)
    for (size_t i = 0; i < parameters[t].data.size(); ++i) {
      double &p = parameters[t].data[i], &m = moments1[t].data[i], &v = moments2[t].data[i];
      double g = factor * operands[2 + n + t].data[i] + l2 * p;
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      p -= lr * decay * p + lr * (m / correction1) / (std::sqrt(v / correction2) + eps);
    }
  for (SmallVector<Tensor> *group : {&parameters, &moments1, &moments2})
    results.append(group->begin(), group->end());
  return success();
}

void attachOptimizerEvaluators(MLIRContext &context) { attachEvaluators<SquareSumOp, ClipFactorOp, AdamOp>(context); }

} // namespace xfc
