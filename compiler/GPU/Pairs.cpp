// Unfused attention over pairs values: scores, sums by distance and weighted sums. A chunk is one head of a sequence.
#include "AttentionTiles.h"
#include "Emitters.h"
#include <utility>

using namespace mlir;

namespace xfc::gpu {

constexpr int64_t queryBlock = 64, keyBlock = 32;

// eachHead() for kernels on tiles of `queryBlock` rows, with a warp for every 16 rows.
static KernelInfo eachHeadByTiles(KernelBuilder &k, int64_t heads, const std::function<void(HeadOfSequence &)> &body) {
  k.threads = queryBlock / AttentionTiles::warpRows * KernelBuilder::warpSize;
  return {eachHead(k, heads, body)};
}

// Splits `count` indices into blocks of up to `size`: body(first, number of indices).
static void eachBlock(KernelBuilder &k, Value count, int64_t size, const std::function<void(Value, Value)> &body) {
  k.loop(0, count, size, [&](Value first) { body(first, k.min(k.sub(count, first), size)); });
}
static Values eachBlock(KernelBuilder &k, Value count, int64_t size, const Values &state,
                        const std::function<Values(Value, Value, Values)> &body) {
  return k.loop(0, count, size, state,
                [&](Value first, Values s) { return body(first, k.min(k.sub(count, first), size), std::move(s)); });
}

static KernelInfo emitScores(KernelBuilder &k, ScoresOp op) {
  const int64_t heads = op.getResult().getType().getHeads(), dim = op.getQ().getType().getFeatures() / heads;
  return eachHeadByTiles(k, heads, [&](HeadOfSequence &at) {
    at.shareKeys(k, heads * dim / op.getK().getType().getFeatures());
    AttentionTiles tiles(k);
    Tile queries = tiles.tile(queryBlock, dim), keys = tiles.tile(keyBlock, dim);
    View block = at.pairs(k, op.getResult(), heads);
    eachBlock(k, at.queries, queryBlock, [&](Value i, Value rows) {
      k.barrier();
      tiles.copyIn(queries, at.rows(k, op.getQMutable(), dim, i), rows, op.getQMutable(), dim);
      eachBlock(k, at.keys, keyBlock, [&](Value j, Value count) {
        k.barrier();
        tiles.copyIn(keys, at.listedRows(k, op.getKMutable(), dim, j), count, op.getKMutable(), dim);
        k.barrier();
        Values scores = tiles.productTransposed(queries, keys);
        tiles.copyOutPairs(block.row(k.i64Of(i)) + j, scores, rows, count);
      });
    });
  });
}

// A block takes the queries in order. A query has each distance and direction at most once, so threads do not conflict.
static KernelInfo emitSumDistances(KernelBuilder &k, SumDistancesOp op) {
  const int64_t heads = op.getX().getType().getHeads();
  return {eachHead(k, heads, [&](HeadOfSequence &at) {
    View block = at.pairs(k, op.getXMutable(), heads);
    RowAt row = at.rows(k, op.getResult(), 2, k.i32Of(0));
    k.acrossThreads(at.queries, [&](Value t) {
      k.store(0, row(t));
      k.store(0, row(t) + 1);
    });
    k.loop(0, at.queries, 1, [&](Value query) {
      k.barrier();
      View from = block.row(k.i64Of(query));
      k.acrossThreads(at.keys, [&](Value key) {
        auto [distance, after] = at.distanceOf(k, query, key);
        const View sum = row(k.truncated(distance)) + after;
        Value pair = k.load(from + key);
        k.store(k.addf(k.load(sum), pair), sum);
      });
    });
  })};
}

static KernelInfo emitCombine(KernelBuilder &k, CombineOp op) {
  const int64_t heads = op.getP().getType().getHeads(), dim = op.getType().getFeatures() / heads;
  return eachHeadByTiles(k, heads, [&](HeadOfSequence &at) {
    at.shareKeys(k, heads * dim / op.getV().getType().getFeatures());
    AttentionTiles tiles(k);
    Tile pairs = tiles.tile(queryBlock, keyBlock), values = tiles.tile(keyBlock, dim);
    View block = at.pairs(k, op.getPMutable(), heads);
    eachBlock(k, at.queries, queryBlock, [&](Value i, Value rows) {
      Values sums = eachBlock(k, at.keys, keyBlock, tiles.zeros(values.width), [&](Value j, Value count, Values s) {
        k.barrier();
        tiles.copyPairs(pairs, block.row(k.i64Of(i)) + j, rows, count, /*transposed=*/false);
        tiles.copyIn(values, at.listedRows(k, op.getVMutable(), dim, j), count, op.getVMutable(), dim);
        k.barrier();
        return tiles.product(std::move(s), pairs, values, count);
      });
      Value one = k.scalar(1);
      tiles.copyOut(at.rows(k, op.getResult(), dim, i), sums, rows, op.getResult(), dim, {one, one});
    });
  });
}

static KernelInfo emitCombineTransposed(KernelBuilder &k, CombineTransposedOp op) {
  const int64_t heads = op.getP().getType().getHeads(), dim = op.getX().getType().getFeatures() / heads;
  const int64_t keyHeads = op.getType().getFeatures() / dim;
  return eachHeadByTiles(k, keyHeads, [&](HeadOfSequence &at) {
    AttentionTiles tiles(k);
    // Here the rows are keys.
    Tile pairs = tiles.tile(queryBlock, keyBlock), inputs = tiles.tile(keyBlock, dim);
    at.clearRowsThatAreNoKeys(k, k.i32Of(0), at.keys, {{op.getResult(), dim}});
    eachBlock(k, at.keys, queryBlock, [&](Value j, Value rows) {
      Values sums = at.eachSharing(k, heads / keyHeads, tiles.zeros(inputs.width), [&](const Values &before) {
        View block = at.pairs(k, op.getPMutable(), heads);
        return eachBlock(k, at.queries, keyBlock, before, [&](Value i, Value count, Values s) {
          k.barrier();
          tiles.copyPairs(pairs, block.row(k.i64Of(i)) + j, count, rows, /*transposed=*/true);
          tiles.copyIn(inputs, at.rows(k, op.getXMutable(), dim, i), count, op.getXMutable(), dim);
          k.barrier();
          return tiles.product(std::move(s), pairs, inputs, count);
        });
      });
      Value one = k.scalar(1);
      tiles.copyOut(at.listedRows(k, op.getResult(), dim, j), sums, rows, op.getResult(), dim, {one, one});
    });
  });
}

void attachPairsKernels(MLIRContext &context) {
  attachKernels<emitScores, emitSumDistances, emitCombine, emitCombineTransposed>(context);
}

} // namespace xfc::gpu
