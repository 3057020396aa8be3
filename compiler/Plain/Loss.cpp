// The plain kernels of losses.
#include "Lowerings.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// log_softmax, nll
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(LogSoftmaxOp, PlainBuilder &b) {
  Value x = b.operand(0), y = b.result(0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value row = b.slice(x, {i});
    Number largest = b.reduce("j->", row, -INFINITY, [](auto v) { return max(v[0], v[1]); });
    Number lse = largest + log(b.reduce("j->", row, 0, [&](auto v) { return v[1] + exp(v[0] - largest); }));
    b.elementwise(row, b.slice(y, {i}), [&](auto v) { return v[0] - lse; });
  });
}

static void lowerPlainOp(LogSoftmaxGradOp, PlainBuilder &b) {
  Value dy = b.operand(0), y = b.operand(1), dx = b.result(0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value row = b.slice(dy, {i});
    Number sum = b.reduce("j->", row, 0, [](auto v) { return v[1] + v[0]; });
    b.elementwise({row, b.slice(y, {i})}, b.slice(dx, {i}), [&](auto v) { return v[0] - exp(v[1]) * sum; });
  });
}

static void lowerPlainOp(NllOp op, PlainBuilder &b) {
  Value logProbs = b.operand(0), labels = b.operand(1), losses = b.result(0), nlls = b.result(1);
  Number smoothing = b.load(b.operand(2));
  b.forEach(b.rowCount(), [&](const Number &i) {
    Number label = b.load(labels, {i}), nll = 0 - b.load(logProbs, {i, max(label, 0)});
    Number sum = b.reduce("j->", b.slice(logProbs, {i}), 0, [](auto v) { return v[1] - v[0]; });
    Number loss = (1 - smoothing) * nll + smoothing / op.getLogProbs().getType().getFeatures() * sum;
    b.store(select(label < 0, 0, loss), losses, {i});
    b.store(select(label < 0, 0, nll), nlls, {i});
  });
}

static void lowerPlainOp(NllGradOp op, PlainBuilder &b) {
  Number smoothing = b.load(b.operand(2));
  b.generic("i,i->ij", {b.operand(0), b.operand(1)}, b.result(0), [&](auto v) {
    Number target = smoothing / op.getType().getFeatures() + select(b.loop('j') == v[1], 1 - smoothing, 0);
    return select(v[1] < 0, 0, (0 - v[0]) * target);
  });
}

void attachLossLowerings(MLIRContext &context) {
  attachLowerings<LogSoftmaxOp, LogSoftmaxGradOp, NllOp, NllGradOp>(context);
}

} // namespace xfc
