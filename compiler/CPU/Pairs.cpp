// Unfused attention: scores, softmax and the weighted sum of values as separate kernels over pairs tensors; and the
// loss that guides it to given keys.
#include "AttentionTiles.h"
#include "Codegen/AlignmentLoss.h"
#include "Codegen/Distances.h"
#include "Codegen/Softmax.h"
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
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
  HeadOfSequence at(k, heads);
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
      View place = block + k.add(k.mul(i, at.keys), j);
      copyPairs(k, place.inRows(at.keys), scores, rows, count);
    });
  });
  return {{perSequence, 1, heads}, (queryBlock * (pairStride + queryStride) + dim * pairStride) * k.bytes()};
}

// Runs `body` for each query of the chunk's head, with the addresses of its row in the operands and then in the result.
static KernelInfo eachQuery(KernelBuilder &k, Operation *op,
                            const std::function<void(HeadOfSequence &, Value, ArrayRef<View>, Value)> &body,
                            std::optional<uint64_t> reach = {}) {
  auto type = cast<PairsType>(op->getResultTypes().front());
  HeadOfSequence at(k, type.getHeads(), type.getKeys() == RowSet::cache);
  at.setReach(k, reach);
  SmallVector<View> blocks;
  for (BufferIndex buffer : buffersOf(op))
    blocks.push_back(at.pairs(k, buffer, type.getHeads()));
  k.loop(0, at.queries, 1, [&](Value query) {
    SmallVector<View> rows;
    for (const View &block : blocks)
      rows.push_back(block + k.mul(query, at.keys));
    body(at, query, rows, at.keys);
  });
  return {{perSequence, 1, type.getHeads()}, 0};
}

// Runs body(offset, mask of the lanes that belong to the row, state) for each vector of a row of `count` pairs.
static Values eachVector(KernelBuilder &k, Value count, ValueRange state,
                         const std::function<Values(Value, Value, Values)> &body) {
  return k.loop(0, count, k.lanes(), state,
                [&](Value j, Values s) { return body(j, k.lanesBelow(j, count), std::move(s)); });
}

// Each chunk computes a range of distances.
static KernelInfo emitDistanceBias(KernelBuilder &k, DistanceBiasOp op) {
  constexpr int64_t per = 512;
  const int64_t distances = op.getType().getDimSize(0), heads = op.getType().getDimSize(1) / 2;
  View bias = k.buffer(op.getResult());
  Value from = k.mul(k.chunk, per), to = k.add(from, per);
  auto each = [&](int64_t first, int64_t end, const std::function<void(Value, const View &)> &body) {
    Value stop = k.min(end, to);
    k.loop(k.max(first, from), stop, 1, [&](Value t) { body(t, bias + k.mul(t, 2 * heads)); });
  };
  if (op.getTable())
    for (const DistanceRange &range : distanceRanges(op, op.getTable().getType().getDimSize(0), distances)) {
      View entry = k.buffer(op.getTableMutable()) + range.bucket * heads;
      each(range.first, range.end, [&](Value, const View &row) {
        k.loop(0, heads, 1, [&](Value h) {
          View place = row + k.mul(h, 2) + range.after;
          k.store(k.load(entry + h), place);
        });
      });
    }
  else
    each(0, distances, [&](Value t, const View &row) {
      Value distance = arith::SIToFPOp::create(k.b, k.element, t);
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t after : {0, 1}) {
          View place = row + (2 * h + after);
          k.store(k.mulf(distance, -slopeOfHead(h, heads)), place);
        }
    });
  return {{Partition::Unit::One, 1, (distances + per - 1) / per}, 0};
}

// Each chunk computes one bucket.
static KernelInfo emitDistanceBiasGrad(KernelBuilder &k, DistanceBiasGradOp op) {
  const int64_t buckets = op.getType().getDimSize(0), heads = op.getType().getDimSize(1);
  View dy = k.buffer(op.getDyMutable());
  Value first = k.mul(k.chunk, heads);
  View entry = k.buffer(op.getResult()) + first;
  k.loop(0, heads, 1, [&](Value h) { k.store(0, entry + h); });
  for (const DistanceRange &range : distanceRanges(op, buckets, op.getDy().getType().getDimSize(0)))
    k.when(k.equal(k.chunk, range.bucket), [&] {
      k.loop(range.first, range.end, 1, [&](Value t) {
        View row = dy + k.mul(t, 2 * heads) + range.after;
        k.loop(0, heads, 1, [&](Value h) {
          View sum = entry + h;
          Value ofDistance = k.load(row + k.mul(h, 2));
          k.store(k.addf(k.load(sum), ofDistance), sum);
        });
      });
    });
  return {{Partition::Unit::One, 1, buckets}, 0};
}

// The distance between a key and a query, and 1 if the key is after the query, otherwise 0.
static std::pair<Value, Value> distanceOf(KernelBuilder &k, HeadOfSequence &at, Value query, Value key) {
  Value position = at.queryPosition(k, query), distance = k.sub(at.keyPosition(k, key), position);
  return {k.max(distance, k.sub(0, distance)), k.select(k.less(0, distance), 1, 0)};
}

static KernelInfo emitAddDistanceBias(KernelBuilder &k, AddDistanceBiasOp op) {
  const int64_t heads = op.getType().getHeads();
  HeadOfSequence at(k, heads, op.getType().getKeys() == RowSet::cache);
  View from = at.pairs(k, op.getXMutable(), heads), to = at.pairs(k, op.getResult(), heads);
  Value first = k.mul(at.head, 2);
  View table = k.buffer(op.getBiasMutable()) + first;
  k.loop(0, at.queries, 1, [&](Value query) {
    k.loop(0, at.keys, 1, [&](Value key) {
      Value pair = k.add(k.mul(query, at.keys), key);
      auto [distance, after] = distanceOf(k, at, query, key);
      Value bias = k.load(table + k.mul(distance, 2 * heads) + after);
      View sum = to + pair;
      k.store(k.addf(k.load(from + pair), bias), sum);
    });
  });
  return {{perSequence, 1, heads}, 0};
}

static KernelInfo emitSumDistances(KernelBuilder &k, SumDistancesOp op) {
  PairsType type = op.getX().getType();
  const int64_t heads = type.getHeads();
  HeadOfSequence at(k, heads);
  View from = at.pairs(k, op.getXMutable(), heads);
  RowAt row = at.rows(k, op.getResult(), 2, at.firstQuery);
  AttentionTiles(k).zeroOut(row, at.queries, 2);
  k.loop(0, at.queries, 1, [&](Value query) {
    k.loop(0, at.keys, 1, [&](Value key) {
      auto [distance, after] = distanceOf(k, at, query, key);
      View sum = row(distance) + after;
      Value x = k.load(from + k.add(k.mul(query, at.keys), key));
      k.store(k.addf(k.load(sum), x), sum);
    });
  });
  return {{perSequence, 1, heads}, 0};
}

static KernelInfo emitMask(KernelBuilder &k, MaskOp op) {
  auto body = [&](HeadOfSequence &at, Value query, ArrayRef<View> rows, Value count) {
    Value zero = k.index(0), first = at.first(k, query, zero), limit = at.limit(k, query, zero);
    Value hidden = k.splat(op.getZero() ? 0 : -std::numeric_limits<double>::infinity());
    eachVector(k, count, {}, [&](Value j, Value used, const Values &) -> Values {
      Value x = k.load(rows[0] + j, k.lanes());
      View place = rows[1] + j;
      k.storeMasked(at.seen(k, j, first, limit, x, hidden), place, used);
      return {};
    });
  };
  return eachQuery(k, op, body, op.getReach());
}

KernelInfo emitPairsDropout(KernelBuilder &k, DropoutOp op) {
  const double rate = op.getRate().convertToDouble();
  AttentionTiles tiles(k);
  auto body = [&](HeadOfSequence &at, Value query, ArrayRef<View> rows, Value keys) {
    k.loop(0, keys, keyBlock, [&](Value start) {
      Value count = k.min(keyBlock, k.sub(keys, start)), training = k.training();
      k.when(training, [&] { tiles.keepFactors(k.scratch, at, query, start, count, rate); });
      View from = rows[0] + start, to = rows[1] + start;
      eachVector(k, count, {}, [&](Value j, Value used, const Values &) -> Values {
        Value x = k.load(from + j, k.lanes()), factor = k.load(k.scratch + j, k.lanes());
        View place = to + j;
        k.storeMasked(k.select(training, k.mulf(x, factor), x), place, used);
        return {};
      });
    });
  };
  KernelInfo info = eachQuery(k, op, body);
  info.scratch = keyBlock * k.bytes();
  return info;
}

static KernelInfo emitSoftmax(KernelBuilder &k, SoftmaxOp op) {
  KernelBuilder::SumLanes wide(k);
  return eachQuery(k, op, [&](HeadOfSequence &, Value, ArrayRef<View> rows, Value count) {
    const int64_t lanes = k.lanes();
    Value none = k.splat(lowest), zeros = k.splat(0);
    Values largest = eachVector(k, count, none, [&](Value j, Value used, Values s) -> Values {
      return {k.maxf(k.select(used, k.load(rows[0] + j, lanes), none), s[0])};
    });
    Value maximum = k.largest(largest[0]);
    Value reference = k.broadcast(softmaxReference(k, maximum));
    Values sums = eachVector(k, count, zeros, [&](Value j, Value used, Values s) -> Values {
      Value p = k.exp(k.subf(k.load(rows[0] + j, lanes), reference));
      k.storeMasked(p, rows[1] + j, used);
      return {k.addf(s[0], k.select(used, p, zeros))};
    });
    Value sum = k.sum(sums[0]);
    Value inverse = k.broadcast(softmaxScale(k, sum));
    eachVector(k, count, {}, [&](Value j, Value used, const Values &) -> Values {
      View address = rows[1] + j;
      k.storeMasked(k.mulf(k.load(address, lanes), inverse), address, used);
      return {};
    });
  });
}

static KernelInfo emitSoftmaxGrad(KernelBuilder &k, SoftmaxGradOp op) {
  KernelBuilder::SumLanes wide(k);
  return eachQuery(k, op, [&](HeadOfSequence &, Value, ArrayRef<View> rows, Value count) {
    const int64_t lanes = k.lanes();
    Value zeros = k.splat(0);
    Values sums = eachVector(k, count, zeros, [&](Value j, Value used, Values s) -> Values {
      Value dp = k.load(rows[1] + j, lanes), product = k.mulf(k.load(rows[0] + j, lanes), dp);
      return {k.addf(s[0], k.select(used, product, zeros))};
    });
    Value inner = k.broadcast(k.sum(sums[0]));
    eachVector(k, count, {}, [&](Value j, Value used, const Values &) -> Values {
      Value dp = k.load(rows[0] + j, lanes), p = k.load(rows[1] + j, lanes);
      View place = rows[2] + j;
      k.storeMasked(softmaxGrad(k, dp, p, inner), place, used);
      return {};
    });
  });
}

static KernelInfo emitCombine(KernelBuilder &k, CombineOp op) {
  AttentionTiles tiles(k);
  const int64_t heads = cast<PairsType>(op.getP().getType()).getHeads();
  const int64_t dim = op.getType().getFeatures() / heads, stride = tiles.padded(dim);
  HeadOfSequence at(k, heads);
  at.shareKeys(k, heads * dim / op.getV().getType().getFeatures());
  View values = k.scratch.inRows(stride), outputs = values + keyBlock * stride,
       block = at.pairs(k, op.getPMutable(), heads).inRows(at.keys);
  k.loop(0, at.queries, queryBlock, [&](Value i) {
    Value rows = k.min(queryBlock, k.sub(at.queries, i));
    k.loop(0, k.mul(rows, stride), k.lanes(), [&](Value e) { k.storePart(0, outputs + e, k.lanes()); });
    k.loop(0, at.keys, keyBlock, [&](Value j) {
      Value count = k.min(keyBlock, k.sub(at.keys, j));
      tiles.copyIn(values, at.listedRows(k, op.getVMutable(), dim, j), count, dim);
      tiles.product(block + k.add(k.mul(i, at.keys), j), false, {values}, outputs, rows, stride / k.lanes(), count,
                    true);
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
  HeadOfSequence at(k, keyHeads);
  View sums = k.scratch.inRows(stride), inputs = sums + keyBlock * stride;
  at.clearRowsThatAreNoKeys(k, op.getResult(), dim);
  k.loop(0, at.keys, keyBlock, [&](Value j) {
    Value count = k.min(keyBlock, k.sub(at.keys, j));
    k.loop(0, k.mul(count, stride), k.lanes(), [&](Value e) { k.storePart(0, sums + e, k.lanes()); });
    at.eachSharing(k, heads / keyHeads, [&] {
      View block = at.pairs(k, op.getPMutable(), heads).inRows(at.keys) + j;
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

// A chunk is a sequence, with all heads of its pairs.
static KernelInfo emitAlignmentLoss(KernelBuilder &k, AlignmentLossOp op) {
  const int64_t heads = op.getP().getType().getHeads();
  const AlignmentLinks links(k, op, heads);
  const View loss = k.rowsOf(op.getLossMutable()), result = k.rowsOf(op.getResult()),
             alignment = k.rowsOf(op.getAlignment()), means = k.rowsOf(op.getMeans());
  HeadOfSequence at(k, 1);
  View block = at.pairs(k, op.getPMutable(), heads);
  Value perHead = k.mul(at.queries, at.keys);
  k.loop(0, at.queries, 1, [&](Value query) {
    Value row = k.add(at.firstQuery, query);
    View first = block + k.mul(query, at.keys);
    Value sum = k.loop(0, links.width, 1, ValueRange{k.scalar(0)}, [&](Value i, Values s) -> Values {
      Values ofLink = links.meanAndLoss(k, row, i, first, perHead);
      if (!op.getMeans().use_empty())
        k.store(ofLink[0], means(row, i));
      return {k.addf(s[0], ofLink[1])};
    })[0];
    if (!op.getAlignment().use_empty())
      k.store(sum, alignment.row(row));
    if (!op.getResult().use_empty()) {
      View total = result.row(row);
      k.store(k.addf(k.load(loss.row(row)), sum), total);
    }
  });
  return {{perSequence, 1, 1}, 0};
}

static KernelInfo emitAlignmentLossGrad(KernelBuilder &k, AlignmentLossGradOp op) {
  const int64_t heads = op.getType().getHeads();
  const AlignmentLinks links(k, op, heads);
  const View dloss = k.rowsOf(op.getDlossMutable()), means = k.rowsOf(op.getMeansMutable());
  HeadOfSequence at(k, heads);
  View block = at.pairs(k, op.getResult(), heads);
  k.loop(0, at.queries, 1, [&](Value query) {
    Value row = k.add(at.firstQuery, query);
    View first = block + k.mul(query, at.keys);
    eachVector(k, at.keys, {}, [&](Value j, Value used, const Values &) -> Values {
      k.storeMasked(0, first + j, used);
      return {};
    });
    k.when(links.concerns(at.head), [&] {
      Value d = k.load(dloss.row(row));
      k.loop(0, links.width, 1, [&](Value i) { links.storeGradient(row, i, d, means, first); });
    });
  });
  return {{perSequence, 1, heads}, 0};
}

void attachPairsKernels(MLIRContext &context) {
  attachKernels<emitScores, emitDistanceBias, emitDistanceBiasGrad, emitAddDistanceBias, emitSumDistances, emitMask,
                emitSoftmax, emitSoftmaxGrad, emitCombine, emitCombineTransposed, emitAlignmentLoss,
                emitAlignmentLossGrad>(context);
}

} // namespace xfc
