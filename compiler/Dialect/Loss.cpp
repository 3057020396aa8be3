// Losses: definitions, f64 semantics and gradients.
#include "PlainBuilder.h"
#include "Support.h"
#include <cmath>

using namespace mlir;
using namespace xfc;

double xfc::logSumExp(const double *x, int64_t n) {
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

LogicalResult xfc::verifyLoss(Operation *op, RowsType logits, RowsType labels, ArrayRef<RowsType> numbers) {
  if (labels.getSet() != logits.getSet())
    return op->emitOpError("labels are rows of ")
           << stringifyRowSet(labels.getSet()) << ", found rows of " << stringifyRowSet(logits.getSet());
  for (RowsType type : numbers)
    if (type != RowsType::get(op->getContext(), logits.getSet(), {}, logits.getElementType()))
      return op->emitOpError("losses must be one number a row of the labels, found ") << type;
  return verifyOneElementType(op);
}

//===--------------------------------------------------------------------------------------------------------===//
// log_softmax, nll
//===--------------------------------------------------------------------------------------------------------===//

int64_t LogSoftmaxOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult LogSoftmaxOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  for (int64_t i = 0; i < y.shape[0]; ++i) {
    double lse = logSumExp(y.row(i), y.features());
    for (int64_t v = 0; v < y.features(); ++v)
      y.row(i)[v] -= lse;
  }
  results.push_back(std::move(y));
  return success();
}

void LogSoftmaxOp::lowerPlain(PlainBuilder &b) {
  Value x = b.operand(0), y = b.result(0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value row = b.slice(x, {i});
    Number largest = b.reduce("j->", row, -INFINITY, [](auto v) { return max(v[0], v[1]); });
    Number lse = largest + log(b.reduce("j->", row, 0, [&](auto v) { return v[1] + exp(v[0] - largest); }));
    b.elementwise(row, b.slice(y, {i}), [&](auto v) { return v[0] - lse; });
  });
}

LogicalResult LogSoftmaxOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), LogSoftmaxGradOp::create(builder, getLoc(), dy.getType(), dy, getResult()));
  return success();
}

int64_t LogSoftmaxGradOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult LogSoftmaxGradOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands,
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

void LogSoftmaxGradOp::lowerPlain(PlainBuilder &b) {
  Value dy = b.operand(0), y = b.operand(1), dx = b.result(0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value row = b.slice(dy, {i});
    Number sum = b.reduce("j->", row, 0, [](auto v) { return v[1] + v[0]; });
    b.elementwise({row, b.slice(y, {i})}, b.slice(dx, {i}), [&](auto v) { return v[0] - exp(v[1]) * sum; });
  });
}

LogicalResult NllOp::verify() {
  return verifyLoss(*this, getLogProbs().getType(), getLabels().getType(), {getLoss().getType(), getNll().getType()});
}

LogicalResult NllOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor loss = zeros(shape, getLoss().getType()), nll = loss;
  for (int64_t i = 0; i < loss.shape[0]; ++i)
    std::tie(loss.data[i], nll.data[i]) =
        lossOf(operands[0].row(i), operands[0].features(), operands[1].data[i], operands[2].data[0]);
  results.append({std::move(loss), std::move(nll)});
  return success();
}

void NllOp::lowerPlain(PlainBuilder &b) {
  Value logProbs = b.operand(0), labels = b.operand(1), losses = b.result(0), nlls = b.result(1);
  Number smoothing = b.load(b.operand(2));
  b.forEach(b.rowCount(), [&](const Number &i) {
    Number label = b.load(labels, {i}), nll = 0 - b.load(logProbs, {i, max(label, 0)});
    Number sum = b.reduce("j->", b.slice(logProbs, {i}), 0, [](auto v) { return v[1] - v[0]; });
    Number loss = (1 - smoothing) * nll + smoothing / getLogProbs().getType().getFeatures() * sum;
    b.store(select(label < 0, 0, loss), losses, {i});
    b.store(select(label < 0, 0, nll), nlls, {i});
  });
}

LogicalResult NllOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  if (gradients.of(getNll()))
    return emitOpError("only the loss can be differentiated, not nll");
  Value dloss = gradients.of(getLoss());
  if (dloss && gradients.wanted(getLogProbs()))
    gradients.add(getLogProbs(),
                  NllGradOp::create(builder, getLoc(), getLogProbs().getType(), dloss, getLabels(), getSmoothing()));
  return success();
}

LogicalResult NllGradOp::verify() {
  return verifyLoss(*this, getType(), getLabels().getType(), {getDloss().getType()});
}

LogicalResult NllGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor d = zeros(shape, getType());
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

void NllGradOp::lowerPlain(PlainBuilder &b) {
  Number smoothing = b.load(b.operand(2));
  b.generic("i,i->ij", {b.operand(0), b.operand(1)}, b.result(0), [&](auto v) {
    Number target = smoothing / getType().getFeatures() + select(b.loop('j') == v[1], 1 - smoothing, 0);
    return select(v[1] < 0, 0, (0 - v[0]) * target);
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// cross_entropy
//===--------------------------------------------------------------------------------------------------------===//

void xfc::crossEntropy(const Tensor &logits, const Tensor &labels, double smoothing, SmallVectorImpl<Tensor> &results) {
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

LogicalResult CrossEntropyOp::verify() {
  return verifyLoss(*this, getLogits().getType(), getLabels().getType(),
                    {getLoss().getType(), getNll().getType(), getLse().getType()});
}

LogicalResult CrossEntropyOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  crossEntropy(operands[0], operands[1], operands[2].data[0], results);
  return success();
}

LogicalResult CrossEntropyOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  if (gradients.of(getNll()))
    return emitOpError("only the loss can be differentiated, not nll");
  Value dloss = gradients.of(getLoss());
  if (dloss && gradients.wanted(getLogits()))
    gradients.add(getLogits(), CrossEntropyGradOp::create(builder, getLoc(), getLogits().getType(), getLogits(), dloss,
                                                          getLabels(), getLse(), getSmoothing()));
  return success();
}

int64_t CrossEntropyGradOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult CrossEntropyGradOp::verify() {
  if (getType() != getLogits().getType())
    return emitOpError("logits and result must have one type");
  return verifyLoss(*this, getType(), getLabels().getType(), {getDloss().getType(), getLse().getType()});
}

Tensor xfc::crossEntropyGrad(Tensor logits, const Tensor &dloss, const Tensor &labels, const Tensor &lse,
                             double smoothing) {
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

LogicalResult CrossEntropyGradOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands,
                                           SmallVectorImpl<Tensor> &results) {
  results.push_back(crossEntropyGrad(operands[0], operands[1], operands[2], operands[3], operands[4].data[0]));
  return success();
}
