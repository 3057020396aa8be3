// The plain kernels of attention, step by step and fused, and of the decoding cache.
#include "Lowerings.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// scores, combine, combine_transposed
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(ScoresOp op, PlainBuilder &b) {
  const int64_t heads = op.getType().getHeads(), width = op.getQ().getType().getFeatures() / heads;
  Value q = b.operand(0), k = b.operand(1, PlainBuilder::Of::Keys), s = b.result(0);
  b.forEachHead(op.getType(), [&](const PlainBuilder::Head &head) {
    Value block = head.of(s);
    b.fill(block, 0);
    b.generic("ik,j->ij", {head.rowsOf(q, heads), head.keyRows()}, block,
              [&](auto v) { return v[2] + v[0] * b.load(k, {v[1], head.head * width + b.loop('k')}); });
  });
}

static void lowerPlainOp(CombineOp op, PlainBuilder &b) {
  const int64_t heads = op.getP().getType().getHeads(), width = op.getType().getFeatures() / heads;
  Value p = b.operand(0), v = b.operand(1, PlainBuilder::Of::Keys), o = b.result(0);
  b.forEachHead(op.getP().getType(), [&](const PlainBuilder::Head &head) {
    Value sums = head.rowsOf(o, heads);
    b.fill(sums, 0);
    b.generic("ij,j->ik", {head.of(p), head.keyRows()}, sums,
              [&](auto at) { return at[2] + at[0] * b.load(v, {at[1], head.head * width + b.loop('k')}); });
  });
}

static void lowerPlainOp(CombineTransposedOp op, PlainBuilder &b) {
  const int64_t heads = op.getP().getType().getHeads(), width = op.getType().getFeatures() / heads;
  Value p = b.operand(0), x = b.operand(1), y = b.result(0, PlainBuilder::Of::Keys);
  b.fill(y, 0);
  b.forEachHead(op.getP().getType(), [&](const PlainBuilder::Head &head) {
    Value block = head.of(p), rows = head.rowsOf(x, heads), keyRows = head.keyRows();
    b.forEach(head.keys, [&](const Number &j) {
      Value sums = b.slice(y, {b.load(keyRows, {j}), {head.head * width, width}});
      b.generic("i,ik->k", {b.slice(block, {Cut::all(), j}), rows}, sums, [](auto v) { return v[2] + v[0] * v[1]; });
    });
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// scale, mask, softmax
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(MaskOp op, PlainBuilder &b) {
  Value x = b.operand(0), y = b.result(0);
  b.forEachHead(cast<PairsType>(op.getType()), [&](const PlainBuilder::Head &head) {
    b.generic("ij,i->ij", {head.of(x), head.limits()}, head.of(y),
              [&](auto v) { return select(b.loop('j') < v[1], v[0], op.getZero() ? 0 : -INFINITY); });
  });
}

static void lowerPlainOp(SoftmaxOp op, PlainBuilder &b) {
  Value scores = b.operand(0), probabilities = b.result(0);
  b.forEachHead(cast<PairsType>(op.getType()), [&](const PlainBuilder::Head &head) {
    Value from = head.of(scores), to = head.of(probabilities);
    b.forEach(head.rows, [&](const Number &i) {
      Value x = b.slice(from, {i}), p = b.slice(to, {i});
      Number largest = b.reduce("j->", x, -INFINITY, [](auto v) { return max(v[0], v[1]); });
      b.elementwise(x, p, [&](auto v) { return exp(v[0] - largest); });
      // The sum of a row of nothing but minus infinity is NaN, which is not above 0.
      Number sum = b.reduce("j->", p, 0, [](auto v) { return v[1] + v[0]; });
      b.elementwise(p, p, [&](auto v) { return select(sum > 0, v[0] / sum, 0); });
    });
  });
}

static void lowerPlainOp(SoftmaxGradOp op, PlainBuilder &b) {
  Value upstream = b.operand(0), probabilities = b.operand(1), downstream = b.result(0);
  b.forEachHead(cast<PairsType>(op.getType()), [&](const PlainBuilder::Head &head) {
    Value dps = head.of(upstream), ps = head.of(probabilities), dss = head.of(downstream);
    b.forEach(head.rows, [&](const Number &i) {
      Value dp = b.slice(dps, {i}), p = b.slice(ps, {i});
      Number sum = b.reduce("j,j->", {dp, p}, 0, [](auto v) { return v[2] + v[0] * v[1]; });
      b.elementwise({dp, p}, b.slice(dss, {i}), [&](auto v) { return v[1] * (v[0] - sum); });
    });
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// cache_write
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(CacheWriteOp, PlainBuilder &b) {
  Value rows = b.operand(1), cache = b.result(0, PlainBuilder::Of::Cache), slots = b.slots();
  b.forEach(b.rowCount(), [&](const Number &h) {
    b.elementwise(b.slice(rows, {h}), b.slice(cache, {b.load(slots, {h})}), [](auto v) { return v[0]; });
  });
}

void attachAttentionLowerings(MLIRContext &context) {
  attachLowerings<ScoresOp, CombineOp, CombineTransposedOp, MaskOp, SoftmaxOp, SoftmaxGradOp, CacheWriteOp>(context);
}

} // namespace xfc
