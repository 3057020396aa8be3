// Defines what losses and their gradients compute.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

double logSumExp(const double *x, int64_t n) {
  double largest = *std::max_element(x, x + n), sum = 0;
  for (int64_t v = 0; v < n; ++v)
    sum += std::exp(x[v] - largest);
  return largest + std::log(sum);
}

// Loss and nll of one row of log-probabilities.
static std::pair<double, double> lossOf(const double *logProbs, int64_t vocabulary, double label, double smoothing) {
  if (label < 0)
    return {0, 0};
  double nll = -logProbs[static_cast<int64_t>(label)], sum = 0;
  for (int64_t v = 0; v < vocabulary; ++v)
    sum -= logProbs[v];
  return {(1 - smoothing) * nll + smoothing / vocabulary * sum, nll};
}

//===--------------------------------------------------------------------------------------------------------===//
// log_softmax, nll
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(LogSoftmaxOp, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  for (int64_t i = 0; i < y.shape[0]; ++i) {
    double lse = logSumExp(y.row(i), y.features());
    for (int64_t v = 0; v < y.features(); ++v)
      y.row(i)[v] -= lse;
  }
  results.push_back(std::move(y));
  return success();
}

static LogicalResult evaluateOp(LogSoftmaxGradOp, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor dx = operands[0];
  const Tensor &y = operands[1];
  for (int64_t i = 0; i < dx.shape[0]; ++i) {
    double sum = 0;
    for (int64_t v = 0; v < dx.features(); ++v)
      sum += dx.row(i)[v];
    for (int64_t v = 0; v < dx.features(); ++v)
      dx.row(i)[v] -= std::exp(y.row(i)[v]) * sum;
  }
  results.push_back(std::move(dx));
  return success();
}

static LogicalResult evaluateOp(NllOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor loss = zeros(shape, op.getLoss().getType()), nll = loss;
  for (int64_t i = 0; i < loss.shape[0]; ++i)
    std::tie(loss.data[i], nll.data[i]) =
        lossOf(operands[0].row(i), operands[0].features(), operands[1].data[i], operands[2].data[0]);
  results.append({std::move(loss), std::move(nll)});
  return success();
}

static LogicalResult evaluateOp(NllGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor d = zeros(shape, op.getType());
  double smoothing = operands[2].data[0];
  for (int64_t i = 0; i < d.shape[0]; ++i) {
    double label = operands[1].data[i], dloss = operands[0].data[i];
    if (label < 0)
      continue;
    for (int64_t v = 0; v < d.features(); ++v)
      d.row(i)[v] = -dloss * (smoothing / d.features() + (v == label ? 1 - smoothing : 0));
  }
  results.push_back(std::move(d));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// cross_entropy
//===--------------------------------------------------------------------------------------------------------===//

void crossEntropy(const Tensor &logits, const Tensor &labels, double smoothing, SmallVectorImpl<Tensor> &results) {
  Tensor loss{{logits.shape[0]}, std::vector<double>(logits.shape[0])}, nll = loss, lse = loss;
  for (int64_t i = 0; i < logits.shape[0]; ++i) {
    lse.data[i] = logSumExp(logits.row(i), logits.features());
    std::vector<double> logProbs(logits.row(i), logits.row(i) + logits.features());
    for (double &value : logProbs)
      value -= lse.data[i];
    std::tie(loss.data[i], nll.data[i]) = lossOf(logProbs.data(), logits.features(), labels.data[i], smoothing);
  }
  results.append({std::move(loss), std::move(nll), std::move(lse)});
}

static LogicalResult evaluateOp(CrossEntropyOp, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  crossEntropy(operands[0], operands[1], operands[2].data[0], results);
  return success();
}

Tensor crossEntropyGrad(Tensor logits, const Tensor &dloss, const Tensor &labels, const Tensor &lse, double smoothing) {
  Tensor d = std::move(logits);
  for (int64_t i = 0; i < d.shape[0]; ++i) {
    double label = labels.data[i];
    for (int64_t v = 0; v < d.features(); ++v)
      d.row(i)[v] = label < 0 ? 0
                              : dloss.data[i] * (std::exp(d.row(i)[v] - lse.data[i]) - smoothing / d.features() -
                                                 (v == label ? 1 - smoothing : 0));
  }
  return d;
}

static LogicalResult evaluateOp(CrossEntropyGradOp, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  results.push_back(crossEntropyGrad(operands[0], operands[1], operands[2], operands[3], operands[4].data[0]));
  return success();
}

void attachLossEvaluators(MLIRContext &context) {
  attachEvaluators<LogSoftmaxOp, LogSoftmaxGradOp, NllOp, NllGradOp, CrossEntropyOp, CrossEntropyGradOp>(context);
}

} // namespace xfc
