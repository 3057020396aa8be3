// Defines what losses and their gradients compute.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>
#include <numeric>

using namespace mlir;

namespace xfc {

double logSumExp(const double *x, int64_t n) {
  double largest = *std::max_element(x, x + n), sum = 0;
  for (int64_t v = 0; v < n; ++v)
    sum += std::exp(x[v] - largest);
  return largest + std::log(sum);
}

// The target of row i over the vocabulary, in either form (XFCOps.td, "Losses"); none if the row has no label.
static std::vector<double> targetOf(const Tensor &labels, const Tensor &smoothing, int64_t i, int64_t vocabulary) {
  const bool single = smoothing.shape.empty();
  const double *label = single ? &labels.data[i] : labels.row(i);
  if (label[0] < 0)
    return {};
  const double both[] = {smoothing.data[0], 1 - smoothing.data[0]}, *shares = single ? both : smoothing.row(i);
  std::vector<double> target(vocabulary, shares[0] / static_cast<double>(vocabulary));
  for (int64_t j = 0; j < (single ? 1 : labels.features()); ++j)
    if (label[j] >= 0)
      target[static_cast<size_t>(label[j])] += shares[1 + j];
  return target;
}

// Loss and nll of row i, which has these log-probabilities.
static std::pair<double, double> lossOf(const double *logProbs, int64_t vocabulary, const Tensor &labels,
                                        const Tensor &smoothing, int64_t i) {
  const std::vector<double> target = targetOf(labels, smoothing, i, vocabulary);
  if (target.empty())
    return {0, 0};
  double loss = 0;
  for (int64_t v = 0; v < vocabulary; ++v)
    loss -= target[v] * logProbs[v];
  return {loss, -logProbs[static_cast<int64_t>(*labels.row(i))]};
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
        lossOf(operands[0].row(i), operands[0].features(), operands[1], operands[2], i);
  results.append({std::move(loss), std::move(nll)});
  return success();
}

static LogicalResult evaluateOp(NllGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor d = zeros(shape, op.getType());
  for (int64_t i = 0; i < d.shape[0]; ++i)
    for (auto [v, share] : llvm::enumerate(targetOf(operands[1], operands[2], i, d.features())))
      d.row(i)[v] = -operands[0].data[i] * share;
  results.push_back(std::move(d));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// cross_entropy
//===--------------------------------------------------------------------------------------------------------===//

void crossEntropy(const Tensor &logits, const Tensor &labels, const Tensor &smoothing,
                  SmallVectorImpl<Tensor> &results) {
  Tensor loss{{logits.shape[0]}, std::vector<double>(logits.shape[0])}, nll = loss, lse = loss;
  for (int64_t i = 0; i < logits.shape[0]; ++i) {
    lse.data[i] = logSumExp(logits.row(i), logits.features());
    std::vector<double> logProbs(logits.row(i), logits.row(i) + logits.features());
    for (double &value : logProbs)
      value -= lse.data[i];
    std::tie(loss.data[i], nll.data[i]) = lossOf(logProbs.data(), logits.features(), labels, smoothing, i);
  }
  results.append({std::move(loss), std::move(nll), std::move(lse)});
}

static LogicalResult evaluateOp(CrossEntropyOp, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  crossEntropy(operands[0], operands[1], operands[2], results);
  return success();
}

Tensor crossEntropyGrad(Tensor logits, const Tensor &dloss, const Tensor &labels, const Tensor &lse,
                        const Tensor &smoothing) {
  Tensor d = std::move(logits);
  for (int64_t i = 0; i < d.shape[0]; ++i) {
    const std::vector<double> target = targetOf(labels, smoothing, i, d.features());
    const double sum = std::accumulate(target.begin(), target.end(), 0.0);
    for (int64_t v = 0; v < d.features(); ++v)
      d.row(i)[v] = target.empty() ? 0 : dloss.data[i] * (sum * std::exp(d.row(i)[v] - lse.data[i]) - target[v]);
  }
  return d;
}

static LogicalResult evaluateOp(CrossEntropyGradOp, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  results.push_back(crossEntropyGrad(operands[0], operands[1], operands[2], operands[3], operands[4]));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// alignment_loss
//===--------------------------------------------------------------------------------------------------------===//

// Calls visit(pair, column) for each link, and the pair of its query and its key.
static void forEachLink(const xfc_shape &shape, PairsType pairs, const Tensor &links,
                        llvm::function_ref<void(const Pair &, int64_t)> visit) {
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    for (int64_t k = 0; k < links.features(); ++k)
      if (links.row(pair.query)[k] == static_cast<double>(pair.index))
        visit(pair, k);
  });
}

static LogicalResult evaluateOp(AlignmentLossOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor loss = operands[0], alignment = zeros(shape, op.getAlignment().getType()),
         means = zeros(shape, op.getMeans().getType());
  const PairsType pairs = op.getP().getType();
  const int64_t heads = pairs.getHeads();
  forEachLink(shape, pairs, operands[2], [&](const Pair &pair, int64_t k) {
    double &mean = means.row(pair.query)[k];
    for (int64_t h = 0; h < heads; ++h)
      if (!op.getHead() || static_cast<int64_t>(*op.getHead()) == h)
        mean += operands[1].data[pair.element(h, heads)] / (op.getHead() ? 1 : static_cast<double>(heads));
    alignment.data[pair.query] -= operands[3].row(pair.query)[k] * std::log(mean + 1e-6);
  });
  for (size_t i = 0; i < loss.data.size(); ++i)
    loss.data[i] += alignment.data[i];
  results.append({std::move(loss), std::move(alignment), std::move(means)});
  return success();
}

static LogicalResult evaluateOp(AlignmentLossGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor dp = zeros(shape, op.getType());
  const int64_t heads = op.getType().getHeads();
  forEachLink(shape, op.getType(), operands[2], [&](const Pair &pair, int64_t k) {
    const double share = operands[3].row(pair.query)[k], mean = operands[1].row(pair.query)[k];
    for (int64_t h = 0; h < heads; ++h)
      if (!op.getHead() || static_cast<int64_t>(*op.getHead()) == h)
        dp.data[pair.element(h, heads)] =
            -operands[0].data[pair.query] * share / ((op.getHead() ? 1 : static_cast<double>(heads)) * (mean + 1e-6));
  });
  results.push_back(std::move(dp));
  return success();
}

void attachLossEvaluators(MLIRContext &context) {
  attachEvaluators<LogSoftmaxOp, LogSoftmaxGradOp, NllOp, NllGradOp, CrossEntropyOp, CrossEntropyGradOp,
                   AlignmentLossOp, AlignmentLossGradOp>(context);
}

} // namespace xfc
