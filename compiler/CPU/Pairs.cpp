// Unfused attention over pairs tensors: scores, sums by distance and the weighted sum of values.
#include "AttentionTiles.h"
#include "Emitters.h"
#include <utility>

using namespace mlir;

namespace xfc {

constexpr int64_t queryBlock = 48, keyBlock = 256;
static const Partition::Unit perSequence = Partition::Unit::Sequences;

// Copies a block of scores to its place, with masked stores, since each row is directly followed by the next.
static void copyPairs(KernelBuilder &k, const View &to, const View &from, Value rows, Value count) {
  k.loop(0, rows, 1, [&](Value r) {
    View target = to.row(r), source = from.row(r);
    k.loop(0, count, k.lanes(), [&](Value j) {
      Value used = k.lanesBelow(j, count);
      View place = target + j;
      k.storeMasked(k.load(source + j, k.lanes()), place, used);
    });
  });
}

static KernelInfo emitScores(KernelBuilder &k, ScoresOp op) {
  AttentionTiles tiles(k);
  const int64_t heads = op.getResult().getType().getHeads(), dim = op.getQ().getType().getFeatures() / heads;
  const int64_t pairStride = keyBlock + 16, queryStride = tiles.padded(dim);
  HeadOfSequence at = HeadOfSequence::ofChunk(k, heads);
  at.shareKeys(k, heads * dim / op.getK().getType().getFeatures());
  View scores = k.scratch.inRows(pairStride), queries = (scores + queryBlock * pairStride).inRows(queryStride),
       keys = (queries + queryBlock * queryStride).inRows(pairStride), block = at.pairs(k, op.getResult(), heads);
  k.loop(0, at.keys, keyBlock, [&](Value j) {
    Value count = k.min(keyBlock, k.sub(at.keys, j));
    tiles.transposeIn(keys, at.listedRows(k, op.getKMutable(), dim, j), count, dim);
    k.loop(0, at.queries, queryBlock, [&](Value i) {
      Value rows = k.min(queryBlock, k.sub(at.queries, i));
      tiles.copyIn(queries, at.rows(k, op.getQMutable(), dim, k.add(at.firstQuery, i)), rows, dim);
      tiles.product(queries, false, {keys}, scores, rows, tiles.vectorsOf(count), dim, false);
      copyPairs(k, block(i, j), scores, rows, count);
    });
  });
  return {{perSequence, 1, heads}, (queryBlock * (pairStride + queryStride) + dim * pairStride) * k.bytes()};
}

static KernelInfo emitSumDistances(KernelBuilder &k, SumDistancesOp op) {
  PairsType type = op.getX().getType();
  const int64_t heads = type.getHeads();
  HeadOfSequence at = HeadOfSequence::ofChunk(k, heads);
  View from = at.pairs(k, op.getXMutable(), heads);
  RowAt row = at.rows(k, op.getResult(), 2, at.firstQuery);
  AttentionTiles(k).zeroOut(row, at.queries, 2);
  k.loop(0, at.queries, 1, [&](Value query) {
    k.loop(0, at.keys, 1, [&](Value key) {
      auto [distance, after] = at.distanceOf(k, query, key);
      View sum = row(distance) + after;
      Value x = k.load(from(query, key));
      k.store(k.addf(k.load(sum), x), sum);
    });
  });
  return {{perSequence, 1, heads}, 0};
}

static KernelInfo emitCombine(KernelBuilder &k, CombineOp op) {
  AttentionTiles tiles(k);
  const int64_t heads = cast<PairsType>(op.getP().getType()).getHeads();
  const int64_t dim = op.getType().getFeatures() / heads, stride = tiles.padded(dim);
  HeadOfSequence at = HeadOfSequence::ofChunk(k, heads);
  at.shareKeys(k, heads * dim / op.getV().getType().getFeatures());
  View values = k.scratch.inRows(stride), outputs = values + keyBlock * stride,
       block = at.pairs(k, op.getPMutable(), heads);
  k.loop(0, at.queries, queryBlock, [&](Value i) {
    Value rows = k.min(queryBlock, k.sub(at.queries, i));
    k.loop(0, k.mul(rows, stride), k.lanes(), [&](Value e) { k.storePart(0, outputs + e, k.lanes()); });
    k.loop(0, at.keys, keyBlock, [&](Value j) {
      Value count = k.min(keyBlock, k.sub(at.keys, j));
      tiles.copyIn(values, at.listedRows(k, op.getVMutable(), dim, j), count, dim);
      tiles.product(block(i, j), false, {values}, outputs, rows, stride / k.lanes(), count, true);
    });
    tiles.copyOut(at.rows(k, op.getResult(), dim, k.add(at.firstQuery, i)), outputs, rows, dim);
  });
  return {{perSequence, 1, heads}, (keyBlock + queryBlock) * stride * k.bytes()};
}

static KernelInfo emitCombineTransposed(KernelBuilder &k, CombineTransposedOp op) {
  AttentionTiles tiles(k);
  const int64_t heads = cast<PairsType>(op.getP().getType()).getHeads();
  const int64_t dim = op.getX().getType().getFeatures() / heads, stride = tiles.padded(dim);
  const int64_t keyHeads = op.getType().getFeatures() / dim;
  HeadOfSequence at = HeadOfSequence::ofChunk(k, keyHeads);
  View sums = k.scratch.inRows(stride), inputs = sums + keyBlock * stride;
  at.clearRowsThatAreNoKeys(k, op.getResult(), dim);
  k.loop(0, at.keys, keyBlock, [&](Value j) {
    Value count = k.min(keyBlock, k.sub(at.keys, j));
    k.loop(0, k.mul(count, stride), k.lanes(), [&](Value e) { k.storePart(0, sums + e, k.lanes()); });
    at.eachSharing(k, heads / keyHeads, [&] {
      View block = at.pairs(k, op.getPMutable(), heads) + j;
      k.loop(0, at.queries, queryBlock, [&](Value i) {
        Value rows = k.min(queryBlock, k.sub(at.queries, i));
        tiles.copyIn(inputs, at.rows(k, op.getXMutable(), dim, k.add(at.firstQuery, i)), rows, dim);
        tiles.product(block.row(i), true, {inputs}, sums, count, stride / k.lanes(), rows, true);
      });
    });
    tiles.copyOut(at.listedRows(k, op.getResult(), dim, j), sums, count, dim);
  });
  return {{perSequence, 1, keyHeads}, (keyBlock + queryBlock) * stride * k.bytes()};
}

void attachPairsKernels(MLIRContext &context) {
  attachKernels<emitScores, emitSumDistances, emitCombine, emitCombineTransposed>(context);
}

} // namespace xfc
