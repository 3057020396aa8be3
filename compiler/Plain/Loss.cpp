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

namespace {

// The target of row i in either form (XFCOps.td, "Losses"): how much is spread evenly, and the share of each label.
struct Target {
  Number even = 0;
  SmallVector<std::pair<Number, Number>> tokens; // with their shares; that of a negative one is 0

  template <typename Op> Target(Op op, PlainBuilder &b, Value labels, Value smoothing, const Number &i) {
    const RowsType type = op.getLabels().getType();
    if (type.getShape().empty()) {
      even = b.load(smoothing);
      tokens.emplace_back(b.load(labels, {i}), 1 - even);
      return;
    }
    even = b.load(smoothing, {i, 0});
    for (int j = 0; j < type.getFeatures(); ++j) {
      Number token = b.load(labels, {i, j});
      tokens.emplace_back(token, select(token < 0, 0, b.load(smoothing, {i, j + 1})));
    }
  }
  const Number &label() const { return tokens.front().first; }
};

} // namespace

static void lowerPlainOp(NllOp op, PlainBuilder &b) {
  Value logProbs = b.operand(0), losses = b.result(0), nlls = b.result(1);
  b.forEach(b.rowCount(), [&](const Number &i) {
    const Target target(op, b, b.operand(1), b.operand(2), i);
    auto nllOf = [&](const Number &token) { return 0 - b.load(logProbs, {i, max(token, 0)}); };
    Number sum = b.reduce("j->", b.slice(logProbs, {i}), 0, [](auto v) { return v[1] - v[0]; });
    Number loss = target.even / op.getLogProbs().getType().getFeatures() * sum;
    for (const auto &[token, share] : target.tokens)
      loss = loss + share * nllOf(token);
    b.store(select(target.label() < 0, 0, loss), losses, {i});
    b.store(select(target.label() < 0, 0, nllOf(target.label())), nlls, {i});
  });
}

static void lowerPlainOp(NllGradOp op, PlainBuilder &b) {
  Value result = b.result(0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    const Target target(op, b, b.operand(1), b.operand(2), i);
    Number scale = select(target.label() < 0, 0, 0 - b.load(b.operand(0), {i}));
    Value row = b.slice(result, {i});
    b.fill(row, target.even / op.getType().getFeatures());
    for (const auto &[token, share] : target.tokens) {
      Number at = max(token, 0);
      b.store(b.load(result, {i, at}) + share, result, {i, at});
    }
    b.elementwise(row, row, [&](auto v) { return v[0] * scale; });
  });
}

void attachLossLowerings(MLIRContext &context) {
  attachLowerings<LogSoftmaxOp, LogSoftmaxGradOp, NllOp, NllGradOp>(context);
}

} // namespace xfc
