// The plain kernels of unfused attention and of the decoding cache.
#include "Codegen/Distances.h"
#include "Lowerings.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// scores, combine, combine_transposed
//===--------------------------------------------------------------------------------------------------------===//

// The first feature of the key head that a query head reads. Keys have `features` features, in heads of `width`.
static Number keyFeature(const PlainBuilder::Head &head, int64_t heads, int64_t features, int64_t width) {
  return head.head / (heads / (features / width)) * width;
}

static void lowerPlainOp(ScoresOp op, PlainBuilder &b) {
  const int64_t heads = op.getType().getHeads(), width = op.getQ().getType().getFeatures() / heads;
  const int64_t features = op.getK().getType().getFeatures();
  Value q = b.operand(0), k = b.operand(1, PlainBuilder::Of::Keys), s = b.result(0);
  b.forEachHead(op.getType(), [&](const PlainBuilder::Head &head) {
    Value block = head.of(s);
    const Number first = keyFeature(head, heads, features, width);
    b.fill(block, 0);
    b.generic("ik,j->ij", {head.rowsOf(q, heads), head.keyRows()}, block,
              [&](auto v) { return v[2] + v[0] * b.load(k, {v[1], first + b.loop('k')}); });
  });
}

static void lowerPlainOp(CombineOp op, PlainBuilder &b) {
  const int64_t heads = op.getP().getType().getHeads(), width = op.getType().getFeatures() / heads;
  const int64_t features = op.getV().getType().getFeatures();
  Value p = b.operand(0), v = b.operand(1, PlainBuilder::Of::Keys), o = b.result(0);
  b.forEachHead(op.getP().getType(), [&](const PlainBuilder::Head &head) {
    Value sums = head.rowsOf(o, heads);
    const Number first = keyFeature(head, heads, features, width);
    b.fill(sums, 0);
    b.generic("ij,j->ik", {head.of(p), head.keyRows()}, sums,
              [&](auto at) { return at[2] + at[0] * b.load(v, {at[1], first + b.loop('k')}); });
  });
}

static void lowerPlainOp(CombineTransposedOp op, PlainBuilder &b) {
  const int64_t heads = op.getP().getType().getHeads(), width = op.getX().getType().getFeatures() / heads;
  const int64_t features = op.getType().getFeatures();
  Value p = b.operand(0), x = b.operand(1), y = b.result(0, PlainBuilder::Of::Keys);
  b.fill(y, 0);
  b.forEachHead(op.getP().getType(), [&](const PlainBuilder::Head &head) {
    Value block = head.of(p), rows = head.rowsOf(x, heads), keyRows = head.keyRows();
    const Number first = keyFeature(head, heads, features, width);
    b.forEach(head.keys, [&](const Number &j) {
      Value sums = b.slice(y, {b.load(keyRows, {j}), {first, width}});
      b.generic("i,ik->k", {b.slice(block, {Cut::all(), j}), rows}, sums, [](auto v) { return v[2] + v[0] * v[1]; });
    });
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// distance_bias, add_distance_bias, sum_distances
//===--------------------------------------------------------------------------------------------------------===//

// The distance between a key and a query, and 1 if the key is after the query, else 0. In a cache, a key's position is
// its index in the list.
static std::pair<Number, Number> distanceOf(PlainBuilder &b, bool cached, const Number &query, const Number &keyRow,
                                            const Number &key) {
  Number i(b, query.as(b, b.b.getIndexType())), j = key;
  if (!cached)
    j = Number(b, b.load(b.positions(PlainBuilder::Of::Keys), {keyRow}).as(b, b.b.getIndexType()));
  const Number lesser = min(i, j), distance = max(i, j) - lesser, one(b, Number(1).as(b, b.b.getIndexType()));
  return {distance, select(i < j, one, 0)};
}

static void lowerPlainOp(DistanceBiasOp op, PlainBuilder &b) {
  const int64_t distances = op.getType().getDimSize(0), heads = op.getType().getDimSize(1) / 2;
  Value bias = b.result(0);
  if (!op.getTable()) {
    b.forEach(distances, [&](const Number &t) {
      for (int64_t f = 0; f < 2 * heads; ++f)
        b.store(Number(b, t.as(b, b.element)) * -slopeOfHead(f / 2, heads), bias, {t, f});
    });
    return;
  }
  for (const DistanceRange &range : distanceRanges(op, op.getTable().getType().getDimSize(0), distances))
    b.forEach(range.end - range.first, [&](const Number &t) {
      b.forEach(heads, [&](const Number &h) {
        const Number distance = t + range.first, column = 2 * h + range.after;
        b.store(b.load(b.operand(0), {range.bucket, h}), bias, {distance, column});
      });
    });
}

static void lowerPlainOp(DistanceBiasGradOp op, PlainBuilder &b) {
  const int64_t buckets = op.getType().getDimSize(0), heads = op.getType().getDimSize(1);
  Value dy = b.operand(0), table = b.result(0);
  b.fill(table, 0);
  for (const DistanceRange &range : distanceRanges(op, buckets, op.getDy().getType().getDimSize(0)))
    b.forEach(range.end - range.first, [&](const Number &t) {
      b.forEach(heads, [&](const Number &h) {
        const Number upstream = b.load(dy, {t + range.first, 2 * h + range.after});
        b.store(b.load(table, {range.bucket, h}) + upstream, table, {range.bucket, h});
      });
    });
}

static void lowerPlainOp(AddDistanceBiasOp op, PlainBuilder &b) {
  const bool cached = op.getType().getKeys() == RowSet::cache;
  Value x = b.operand(0), bias = b.operand(1), y = b.result(0), positions = b.positions();
  b.forEachHead(op.getType(), [&](const PlainBuilder::Head &head) {
    Value sums = head.of(y);
    b.generic("ij,i,j->ij", {head.of(x), head.queries(positions), head.keyRows()}, sums, [&](auto v) {
      auto [t, after] = distanceOf(b, cached, v[1], v[2], b.loop('j'));
      return v[0] + b.load(bias, {t, 2 * head.head + after});
    });
  });
}

static void lowerPlainOp(SumDistancesOp op, PlainBuilder &b) {
  Value x = b.operand(0), sums = b.result(0), positions = b.positions();
  b.fill(sums, 0);
  b.forEachHead(op.getX().getType(), [&](const PlainBuilder::Head &head) {
    Value block = head.of(x), queries = head.queries(positions), keyRows = head.keyRows();
    b.forEach(head.rows, [&](const Number &i) {
      b.forEach(head.keys, [&](const Number &j) {
        const Number keyRow = b.load(keyRows, {j});
        auto [t, after] = distanceOf(b, /*cached=*/false, b.load(queries, {i}), keyRow, j);
        const Number row = head.firstRow + t, f = 2 * head.head + after;
        const Number pair = b.load(block, {i, j});
        b.store(b.load(sums, {row, f}) + pair, sums, {row, f});
      });
    });
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// mask, softmax
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(MaskOp op, PlainBuilder &b) {
  const auto pairs = cast<PairsType>(op.getType());
  const bool cached = pairs.getKeys() == RowSet::cache;
  const double hidden = op.getZero() ? 0 : -INFINITY;
  Value x = b.operand(0), y = b.result(0), positions = b.positions();
  b.forEachHead(pairs, [&](const PlainBuilder::Head &head) {
    Value masked = head.of(y);
    if (!op.getReach())
      return b.generic("ij,i->ij", {head.of(x), head.limits()}, masked,
                       [&](auto v) { return select(b.loop('j') < v[1], v[0], hidden); });
    b.generic("ij,i,i,j->ij", {head.of(x), head.limits(), head.queries(positions), head.keyRows()}, masked,
              [&](auto v) {
                Number far = distanceOf(b, cached, v[2], v[3], b.loop('j')).first > *op.getReach();
                return select(far, hidden, select(b.loop('j') < v[1], v[0], hidden));
              });
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
      // A row that is all minus infinity has the sum NaN, which is not greater than 0.
      Number sum = b.reduce("j->", p, 0, [](auto v) { return v[1] + v[0]; });
      b.elementwise(p, p, [&](auto v) {
        const Number share = v[0] / sum;
        return select(sum > 0, share, 0);
      });
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
    Value slot = b.slice(cache, {b.load(slots, {h})});
    b.elementwise(b.slice(rows, {h}), slot, [](auto v) { return v[0]; });
  });
}

void attachAttentionLowerings(MLIRContext &context) {
  attachLowerings<ScoresOp, CombineOp, CombineTransposedOp, DistanceBiasOp, DistanceBiasGradOp, AddDistanceBiasOp,
                  SumDistancesOp, MaskOp, SoftmaxOp, SoftmaxGradOp, CacheWriteOp>(context);
}

} // namespace xfc
