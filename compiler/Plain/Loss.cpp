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
    Value result = b.slice(dx, {i});
    b.elementwise({row, b.slice(y, {i})}, result, [&](auto v) { return v[0] - exp(v[1]) * sum; });
  });
}

namespace {

// The target of row i in either form (XFCOps.td, "Losses"): how much is spread evenly, and the share of each label.
struct Target {
  Number even = 0;
  SmallVector<std::pair<Number, Number>> tokens; // with their shares; that of a negative one is 0

  template <typename Op> Target(Op op, PlainBuilder &b, const Number &i) {
    Value smoothing = b.operand(2), labels = b.operand(1);
    const RowsType type = op.getLabels().getType();
    if (type.getShape().empty()) {
      even = b.load(smoothing);
      const Number share = 1 - even;
      tokens.emplace_back(b.load(labels, {i}), share);
      return;
    }
    even = b.load(smoothing, {i, 0});
    for (int j = 0; j < type.getFeatures(); ++j) {
      const Number token = b.load(labels, {i, j}), share = b.load(smoothing, {i, j + 1});
      tokens.emplace_back(token, select(token < 0, 0, share));
    }
  }
  const Number &label() const { return tokens.front().first; }
};

} // namespace

static void lowerPlainOp(NllOp op, PlainBuilder &b) {
  Value logProbs = b.operand(0), losses = b.result(0), nlls = b.result(1);
  b.forEach(b.rowCount(), [&](const Number &i) {
    const Target target(op, b, i);
    auto nllOf = [&](const Number &token) { return 0 - b.load(logProbs, {i, max(token, 0)}); };
    Number sum = b.reduce("j->", b.slice(logProbs, {i}), 0, [](auto v) { return v[1] - v[0]; });
    Number loss = target.even / op.getLogProbs().getType().getFeatures() * sum;
    for (const auto &[token, share] : target.tokens)
      loss = loss + share * nllOf(token);
    b.store(select(target.label() < 0, 0, loss), losses, {i});
    const Number nll = nllOf(target.label());
    b.store(select(target.label() < 0, 0, nll), nlls, {i});
  });
}

static void lowerPlainOp(NllGradOp op, PlainBuilder &b) {
  Value result = b.result(0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    const Target target(op, b, i);
    const Number ofKnown = 0 - b.load(b.operand(0), {i}), scale = select(target.label() < 0, 0, ofKnown);
    Value row = b.slice(result, {i});
    b.fill(row, target.even / op.getType().getFeatures());
    for (const auto &[token, share] : target.tokens) {
      Number at = max(token, 0);
      b.store(b.load(result, {i, at}) + share, result, {i, at});
    }
    b.elementwise(row, row, [&](auto v) { return v[0] * scale; });
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// alignment_loss
//===--------------------------------------------------------------------------------------------------------===//

// How many heads' probabilities a mean is taken of, and the first of them.
template <typename Op> static std::pair<int64_t, int64_t> headsOf(Op op, PairsType pairs) {
  return op.getHead() ? std::pair<int64_t, int64_t>(1, *op.getHead())
                      : std::pair<int64_t, int64_t>(pairs.getHeads(), 0);
}

static void lowerPlainOp(AlignmentLossOp op, PlainBuilder &b) {
  const PairsType pairs = op.getP().getType();
  const auto [count, first] = headsOf(op, pairs);
  Value losses = b.operand(0), p = b.operand(1), links = b.operand(2), shares = b.operand(3);
  // One block per sequence, of which the heads follow each other.
  const PairsType sequences = PairsType::get(op.getContext(), pairs.getQueries(), pairs.getKeys(), pairs.getPadding(),
                                             pairs.getCausal(), 1, pairs.getElementType());
  b.forEachHead(sequences, [&, count = count, first = first](const PlainBuilder::Head &head) {
    b.forEach(head.rows, [&](const Number &i) {
      const Number row = head.firstRow + i;
      Number sum = 0;
      for (int k = 0; k < op.getLinks().getType().getFeatures(); ++k) {
        const Number link = b.load(links, {row, k});
        Number mean = 0;
        for (int64_t h = first; h < first + count; ++h) {
          const Number before = (h * head.rows + i) * head.keys, begin = head.element * pairs.getHeads() + before;
          mean = mean + b.reduce("j->", b.slice(p, {Cut(begin, head.keys)}), 0,
                                 [&](auto v) { return v[1] + select(b.loop('j') == link, v[0], 0); });
        }
        mean = mean / count;
        b.store(mean, b.result(2), {row, k});
        const Number logMean = log(mean + AlignmentLossOp::epsilon), share = b.load(shares, {row, k});
        sum = sum - select(link < 0, 0, share) * logMean;
      }
      b.store(sum, b.result(1), {row});
      Value totals = b.result(0);
      b.store(b.load(losses, {row}) + sum, totals, {row});
    });
  });
}

static void lowerPlainOp(AlignmentLossGradOp op, PlainBuilder &b) {
  const auto [count, first] = headsOf(op, op.getType());
  Value dlosses = b.operand(0), means = b.operand(1), links = b.operand(2), shares = b.operand(3), dp = b.result(0);
  b.forEachHead(op.getType(), [&, count = count, first = first](const PlainBuilder::Head &head) {
    Value block = head.of(dp);
    b.generic("ij->ij", block, block, [&](auto) {
      const Number row = head.firstRow + b.loop('i');
      Number sum = 0;
      for (int k = 0; k < op.getLinks().getType().getFeatures(); ++k) {
        const Number mean = b.load(means, {row, k}) + AlignmentLossOp::epsilon, scale = b.load(shares, {row, k}) / mean,
                     link = b.load(links, {row, k});
        sum = sum + select(b.loop('j') == link, scale, 0);
      }
      const Number gradient = b.load(dlosses, {row}) * sum / -count;
      return op.getHead() ? select(head.head == first, gradient, 0) : gradient;
    });
  });
}

void attachLossLowerings(MLIRContext &context) {
  attachLowerings<LogSoftmaxOp, LogSoftmaxGradOp, NllOp, NllGradOp, AlignmentLossOp, AlignmentLossGradOp>(context);
}

} // namespace xfc
