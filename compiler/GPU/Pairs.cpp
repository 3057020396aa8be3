// Attention step by step: scores, softmax and their use as separate kernels over pairs values. A chunk is a head of a
// sequence.
#include "AttentionTiles.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc::gpu {

constexpr int64_t queryBlock = 64, keyBlock = 32;

// With tiles of `queryBlock` rows, of which a warp has its own.
static Backend::KernelInfo eachHeadByTiles(KernelBuilder &k, int64_t heads,
                                           const std::function<void(HeadOfSequence &)> &body) {
  k.threads = queryBlock / AttentionTiles::warpRows * k.warpSize;
  return {eachHead(k, heads, body)};
}

// Blocks of up to `size` of `count` numbers: body(first, how many).
static void eachBlock(KernelBuilder &k, Value count, int64_t size, const std::function<void(Value, Value)> &body) {
  k.loop(k.i32Of(0), count, size,
         [&](Value first) { body(first, k.min(k.sub(count, first), k.i32Of(static_cast<int32_t>(size)))); });
}
static Values eachBlock(KernelBuilder &k, Value count, int64_t size, const Values &state,
                        const std::function<Values(Value, Value, Values)> &body) {
  return k.loop(k.i32Of(0), count, size, state, [&](Value first, Values s) {
    return body(first, k.min(k.sub(count, first), k.i32Of(static_cast<int32_t>(size))), s);
  });
}

static Backend::KernelInfo emitScores(KernelBuilder &k, ScoresOp op) {
  const int64_t heads = op.getResult().getType().getHeads(), dim = op.getQ().getType().getFeatures() / heads;
  return eachHeadByTiles(k, heads, [&](HeadOfSequence &at) {
    AttentionTiles tiles(k, /*bf16=*/false);
    Tile queries = tiles.tile(queryBlock, dim), keys = tiles.tile(keyBlock, dim);
    Value block = at.pairs(k, op.getResult(), heads);
    eachBlock(k, at.queries, queryBlock, [&](Value i, Value rows) {
      k.barrier();
      tiles.copyIn(queries, at.rows(k, op.getQMutable(), dim, i), rows, op.getQMutable(), dim);
      eachBlock(k, at.keys, keyBlock, [&](Value j, Value count) {
        k.barrier();
        tiles.copyIn(keys, at.listedRows(k, op.getKMutable(), dim, j), count, op.getKMutable(), dim);
        k.barrier();
        Values scores = tiles.productTransposed(tiles.zeros(keyBlock), tiles.rowsOf(queries), keys);
        tiles.copyOutPairs(k.offset(at.pairsRow(k, block, i), j), scores, k.i64Of(at.keys), rows, count);
      });
    });
  });
}

// The rows of pairs values, a warp each: body(where it begins in each operand and the result, how many numbers).
static Backend::KernelInfo eachRow(KernelBuilder &k, PairsType type, int64_t buffers,
                                   const std::function<void(ArrayRef<Value>, Value)> &body) {
  return {eachQuery(k, type.getHeads(), [&](HeadOfSequence &at, Value query) {
    SmallVector<Value> rows;
    for (int64_t i = 0; i < buffers; ++i)
      rows.push_back(at.pairsRow(k, at.pairs(k, i, type.getHeads()), query));
    body(rows, at.keys);
  })};
}

// The numbers of a row over the lanes.
static Value eachLane(KernelBuilder &k, Value count, Value state, const std::function<Value(Value, Value)> &body) {
  return k.loop(k.lane(), count, k.warpSize, ValueRange{state},
                [&](Value j, Values s) -> Values { return {body(j, s[0])}; })[0];
}

static Backend::KernelInfo emitSoftmax(KernelBuilder &k, SoftmaxOp op) {
  return eachRow(k, cast<PairsType>(op.getType()), 2, [&](ArrayRef<Value> rows, Value count) {
    auto at = [&](int64_t i, Value j) { return k.offset(rows[i], j); };
    Value maximum =
        k.warpMax(eachLane(k, count, k.scalar(lowest), [&](Value j, Value s) { return k.maxf(k.load(at(0, j)), s); }));
    Value reference = softmaxReference(k, maximum);
    Value sum = k.warpSum(eachLane(k, count, k.scalar(0), [&](Value j, Value s) {
      Value p = k.exp(k.subf(k.load(at(0, j)), reference));
      k.store(p, at(1, j));
      return k.addf(s, p);
    }));
    Value inverse = softmaxScale(k, sum);
    k.loop(k.lane(), count, k.warpSize, [&](Value j) { k.store(k.mulf(k.load(at(1, j)), inverse), at(1, j)); });
  });
}

static Backend::KernelInfo emitSoftmaxGrad(KernelBuilder &k, SoftmaxGradOp op) {
  return eachRow(k, cast<PairsType>(op.getType()), 3, [&](ArrayRef<Value> rows, Value count) {
    auto at = [&](int64_t i, Value j) { return k.offset(rows[i], j); };
    Value inner = k.warpSum(eachLane(k, count, k.scalar(0),
                                     [&](Value j, Value s) { return k.fma(k.load(at(0, j)), k.load(at(1, j)), s); }));
    k.loop(k.lane(), count, k.warpSize, [&](Value j) {
      Value dp = k.load(at(0, j)), p = k.load(at(1, j));
      k.store(softmaxGrad(k, dp, p, inner), at(2, j));
    });
  });
}

static Backend::KernelInfo emitCombine(KernelBuilder &k, CombineOp op) {
  const int64_t heads = op.getP().getType().getHeads(), dim = op.getV().getType().getFeatures() / heads;
  return eachHeadByTiles(k, heads, [&](HeadOfSequence &at) {
    AttentionTiles tiles(k, /*bf16=*/false);
    Tile pairs = tiles.tile(queryBlock, keyBlock), values = tiles.tile(keyBlock, dim);
    Value block = at.pairs(k, op.getPMutable(), heads);
    eachBlock(k, at.queries, queryBlock, [&](Value i, Value rows) {
      Values sums = eachBlock(k, at.keys, keyBlock, tiles.zeros(values.width), [&](Value j, Value count, Values s) {
        k.barrier();
        tiles.copyPairs(pairs, k.offset(at.pairsRow(k, block, i), j), k.i64Of(at.keys), rows, count,
                        /*transposed=*/false);
        tiles.copyIn(values, at.listedRows(k, op.getVMutable(), dim, j), count, op.getVMutable(), dim);
        k.barrier();
        return tiles.product(s, tiles.rowsOf(pairs), values, count);
      });
      tiles.copyOut(at.rows(k, op.getResult(), dim, i), sums, rows, op.getResult(), dim, {k.scalar(1), k.scalar(1)});
    });
  });
}

static Backend::KernelInfo emitCombineTransposed(KernelBuilder &k, CombineTransposedOp op) {
  const int64_t heads = op.getP().getType().getHeads(), dim = op.getX().getType().getFeatures() / heads;
  return eachHeadByTiles(k, heads, [&](HeadOfSequence &at) {
    AttentionTiles tiles(k, /*bf16=*/false);
    // The keys are the rows here.
    Tile pairs = tiles.tile(queryBlock, keyBlock), inputs = tiles.tile(keyBlock, dim);
    Value block = at.pairs(k, op.getPMutable(), heads);
    at.clearRowsThatAreNoKeys(k, k.i32Of(0), at.keys, {{op.getResult(), dim}});
    eachBlock(k, at.keys, queryBlock, [&](Value j, Value rows) {
      Values sums = eachBlock(k, at.queries, keyBlock, tiles.zeros(inputs.width), [&](Value i, Value count, Values s) {
        k.barrier();
        tiles.copyPairs(pairs, k.offset(at.pairsRow(k, block, i), j), k.i64Of(at.keys), count, rows,
                        /*transposed=*/true);
        tiles.copyIn(inputs, at.rows(k, op.getXMutable(), dim, i), count, op.getXMutable(), dim);
        k.barrier();
        return tiles.product(s, tiles.rowsOf(pairs), inputs, count);
      });
      tiles.copyOut(at.listedRows(k, op.getResult(), dim, j), sums, rows, op.getResult(), dim,
                    {k.scalar(1), k.scalar(1)});
    });
  });
}

void attachPairsKernels(MLIRContext &context) {
  attachKernels<emitScores, emitSoftmax, emitSoftmaxGrad, emitCombine, emitCombineTransposed>(context);
}

} // namespace xfc::gpu
