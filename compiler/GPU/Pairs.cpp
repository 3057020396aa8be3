// Unfused attention: scores, softmax, bias and weighted sums as separate kernels over pairs values; and the loss that
// guides it to given keys. Unless noted otherwise, a chunk is one head of a sequence.
#include "AttentionTiles.h"
#include "Codegen/AlignmentLoss.h"
#include "Codegen/Distances.h"
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
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
    AttentionTiles tiles(k, /*bf16=*/false);
    Tile queries = tiles.tile(queryBlock, dim), keys = tiles.tile(keyBlock, dim);
    View block = at.pairs(k, op.getResult(), heads);
    eachBlock(k, at.queries, queryBlock, [&](Value i, Value rows) {
      k.barrier();
      tiles.copyIn(queries, at.rows(k, op.getQMutable(), dim, i), rows, op.getQMutable(), dim);
      eachBlock(k, at.keys, keyBlock, [&](Value j, Value count) {
        k.barrier();
        tiles.copyIn(keys, at.listedRows(k, op.getKMutable(), dim, j), count, op.getKMutable(), dim);
        k.barrier();
        Values scores = tiles.productTransposed(tiles.zeros(keyBlock), queries, keys);
        tiles.copyOutPairs(block.row(k.i64Of(i)) + j, scores, rows, count);
      });
    });
  });
}

// One warp for each row of pairs values: body(the row's addresses in each operand and the result, its length).
static KernelInfo eachRow(KernelBuilder &k, Operation *op, const std::function<void(ArrayRef<View>, Value)> &body) {
  auto type = cast<PairsType>(op->getResultTypes().front());
  return {eachQuery(k, type.getHeads(), [&](HeadOfSequence &at, Value query) {
    SmallVector<View> rows;
    for (BufferIndex buffer : buffersOf(op))
      rows.push_back(at.pairsRow(k, buffer, type.getHeads(), query));
    body(rows, at.keys);
  })};
}

// Spreads the elements of a row over the lanes of a warp. Returns the lane's final state.
static Value eachLane(KernelBuilder &k, Value count, Value state, const std::function<Value(Value, Value)> &body) {
  return k.loop(k.lane(), count, KernelBuilder::warpSize, ValueRange{state},
                [&](Value j, Values s) -> Values { return {body(j, s[0])}; })[0];
}

// A chunk is a range of distances.
static KernelInfo emitDistanceBias(KernelBuilder &k, DistanceBiasOp op) {
  constexpr int64_t per = 512;
  const int64_t distances = op.getType().getDimSize(0), heads = op.getType().getDimSize(1) / 2;
  View bias = k.buffer(op.getResult());
  Value from = k.mul(k.chunk, per), to = k.add(from, per);
  // body(distance, head, address of the entry for keys before the query).
  auto each = [&](int64_t first, int64_t end, const std::function<void(Value, Value, const View &)> &body) {
    Value begin = k.max(first, from), stop = k.min(end, to);
    k.acrossThreads(k.truncated(k.mul(k.max(k.sub(stop, begin), 0), heads)), [&](Value i) {
      Value t = k.add(begin, k.i64Of(k.div(i, heads))), head = k.i64Of(k.rem(i, heads));
      Value column = k.mul(head, 2);
      body(t, head, bias + k.add(k.mul(t, 2 * heads), column));
    });
  };
  if (op.getTable()) {
    for (const DistanceRange &range : distanceRanges(op, op.getTable().getType().getDimSize(0), distances))
      each(range.first, range.end, [&](Value, Value head, const View &place) {
        View entry = k.buffer(op.getTableMutable()) + range.bucket * heads + head, to = place + range.after;
        k.store(k.load(entry), to);
      });
  } else {
    each(0, distances, [&](Value t, Value head, const View &place) {
      Value slope = k.scalar(0);
      for (int64_t h = 0; h < heads; ++h)
        slope = k.select(k.equal(head, h), -slopeOfHead(h, heads), slope);
      Value number = k.mulf(arith::SIToFPOp::create(k.b, k.element, t), slope);
      k.store(number, place);
      k.store(number, place + 1);
    });
  }
  return {{Partition::Unit::One, 1, (distances + per - 1) / per}};
}

// A chunk is a bucket; a thread takes one head of it.
static KernelInfo emitDistanceBiasGrad(KernelBuilder &k, DistanceBiasGradOp op) {
  const int64_t buckets = op.getType().getDimSize(0), heads = op.getType().getDimSize(1);
  SmallVector<DistanceRange> ranges = distanceRanges(op, buckets, op.getDy().getType().getDimSize(0));
  k.acrossThreads(heads, [&](Value h) {
    Value head = k.i64Of(h), sum = k.scalar(0);
    for (const DistanceRange &range : ranges)
      sum = k.choose(
          k.equal(k.chunk, range.bucket),
          [&] {
            return k.loop(range.first, range.end, 1, ValueRange{sum}, [&](Value t, Values s) -> Values {
              Value first = k.mul(t, 2 * heads);
              View row = k.buffer(op.getDyMutable()) + first;
              return {k.addf(s[0], k.load(row + k.mul(head, 2) + range.after))};
            });
          },
          [&]() -> Values { return {sum}; })[0];
    Value place = k.add(k.mul(k.chunk, heads), head);
    k.store(sum, k.buffer(op.getResult()) + place);
  });
  return {{Partition::Unit::One, 1, buckets}};
}

// The distance between a key and a query, and 1 if the key is after the query, else 0 (i64).
static std::pair<Value, Value> distanceOf(KernelBuilder &k, HeadOfSequence &at, Value query, Value key) {
  Value ofQuery = at.queryPosition(k, query), distance = k.sub(at.keyPosition(k, key), ofQuery);
  return {k.i64Of(k.max(distance, k.sub(0, distance))), k.select(k.less(0, distance), 1, 0)};
}

static KernelInfo emitAddDistanceBias(KernelBuilder &k, AddDistanceBiasOp op) {
  const int64_t heads = op.getType().getHeads();
  const bool cached = op.getType().getKeys() == RowSet::cache;
  return {eachQuery(k, heads, [&](HeadOfSequence &at, Value query) {
    at.setReach(k, {}, cached);
    View from = at.pairsRow(k, op.getXMutable(), heads, query), to = at.pairsRow(k, op.getResult(), heads, query);
    Value first = k.mul(at.head, 2);
    View table = k.buffer(op.getBiasMutable()) + first;
    k.loop(k.lane(), at.keys, KernelBuilder::warpSize, [&](Value key) {
      auto [distance, after] = distanceOf(k, at, query, key);
      Value bias = k.load(table + k.mul(distance, 2 * heads) + after);
      View sum = to + key;
      k.store(k.addf(k.load(from + key), bias), sum);
    });
  })};
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
        auto [distance, after] = distanceOf(k, at, query, key);
        const View sum = row(k.truncated(distance)) + after;
        Value pair = k.load(from + key);
        k.store(k.addf(k.load(sum), pair), sum);
      });
    });
  })};
}

static KernelInfo emitSoftmax(KernelBuilder &k, SoftmaxOp op) {
  return eachRow(k, op, [&](ArrayRef<View> rows, Value count) {
    auto at = [&](int64_t i, Value j) { return rows[i] + j; };
    Value maximum =
        k.warpMax(eachLane(k, count, k.scalar(lowest), [&](Value j, Value s) { return k.maxf(k.load(at(0, j)), s); }));
    Value reference = softmaxReference(k, maximum);
    Value sum = k.warpSum(eachLane(k, count, k.scalar(0), [&](Value j, Value s) {
      Value p = k.exp(k.subf(k.load(at(0, j)), reference));
      k.store(p, at(1, j));
      return k.addf(s, p);
    }));
    Value inverse = softmaxScale(k, sum);
    k.loop(k.lane(), count, KernelBuilder::warpSize, [&](Value j) {
      const View p = at(1, j);
      k.store(k.mulf(k.load(p), inverse), p);
    });
  });
}

static KernelInfo emitSoftmaxGrad(KernelBuilder &k, SoftmaxGradOp op) {
  return eachRow(k, op, [&](ArrayRef<View> rows, Value count) {
    auto at = [&](int64_t i, Value j) { return rows[i] + j; };
    Value inner = k.warpSum(eachLane(k, count, k.scalar(0), [&](Value j, Value s) {
      Value p = k.load(at(1, j));
      return k.fma(k.load(at(0, j)), p, s);
    }));
    k.loop(k.lane(), count, KernelBuilder::warpSize, [&](Value j) {
      Value dp = k.load(at(0, j)), p = k.load(at(1, j));
      const View ds = at(2, j);
      k.store(softmaxGrad(k, dp, p, inner), ds);
    });
  });
}

static KernelInfo emitCombine(KernelBuilder &k, CombineOp op) {
  const int64_t heads = op.getP().getType().getHeads(), dim = op.getType().getFeatures() / heads;
  return eachHeadByTiles(k, heads, [&](HeadOfSequence &at) {
    at.shareKeys(k, heads * dim / op.getV().getType().getFeatures());
    AttentionTiles tiles(k, /*bf16=*/false);
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
    AttentionTiles tiles(k, /*bf16=*/false);
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

// A chunk is a sequence, with all heads of its pairs; a lane takes every 32nd link of its warp's query.
static KernelInfo emitAlignmentLoss(KernelBuilder &k, AlignmentLossOp op) {
  const int64_t heads = op.getP().getType().getHeads();
  const AlignmentLinks links(k, op, heads);
  const View loss = k.rowsOf(op.getLossMutable()), result = k.rowsOf(op.getResult()),
             alignment = k.rowsOf(op.getAlignment()), means = k.rowsOf(op.getMeans());
  return {eachQuery(k, 1, [&](HeadOfSequence &at, Value query) {
    Value row = k.add(at.firstQuery, k.i64Of(query));
    View first = at.pairsRow(k, op.getPMutable(), heads, query);
    Value keys = k.i64Of(at.keys), perHead = k.mul(k.i64Of(at.queries), keys);
    Value zero = k.scalar(0), count = k.i32Of(static_cast<int32_t>(links.width));
    Value sum = k.warpSum(eachLane(k, count, zero, [&](Value i, Value s) {
      Values ofLink = links.meanAndLoss(k, row, i, first, perHead);
      if (!op.getMeans().use_empty())
        k.store(ofLink[0], means(row, i));
      return k.addf(s, ofLink[1]);
    }));
    k.when(k.equal(k.lane(), 0), [&] {
      if (!op.getAlignment().use_empty())
        k.store(sum, alignment.row(row));
      if (!op.getResult().use_empty()) {
        const View total = result.row(row);
        k.store(k.addf(k.load(loss.row(row)), sum), total);
      }
    });
  })};
}

static KernelInfo emitAlignmentLossGrad(KernelBuilder &k, AlignmentLossGradOp op) {
  const int64_t heads = op.getType().getHeads();
  const AlignmentLinks links(k, op, heads);
  const View dloss = k.rowsOf(op.getDlossMutable()), means = k.rowsOf(op.getMeansMutable());
  AttentionTiles tiles(k, /*bf16=*/false);
  return {eachQuery(k, heads, [&](HeadOfSequence &at, Value query) {
    Value row = k.add(at.firstQuery, k.i64Of(query));
    View first = at.pairsRow(k, op.getResult(), heads, query);
    k.loop(k.lane(), at.keys, KernelBuilder::warpSize, [&](Value j) { k.store(0, first + j); });
    tiles.syncWarp(); // a link may be at a key that another lane has cleared
    k.when(links.concerns(at.head), [&] {
      Value d = k.load(dloss.row(row));
      k.loop(k.lane(), links.width, KernelBuilder::warpSize,
             [&](Value i) { links.storeGradient(row, i, d, means, first); });
    });
  })};
}

void attachPairsKernels(MLIRContext &context) {
  attachKernels<emitScores, emitDistanceBias, emitDistanceBiasGrad, emitAddDistanceBias, emitSumDistances, emitSoftmax,
                emitSoftmaxGrad, emitCombine, emitCombineTransposed, emitAlignmentLoss, emitAlignmentLossGrad>(context);
}

} // namespace xfc::gpu
