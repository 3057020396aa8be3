// xfc.attention_grad: dq, dk, dv and dbias for each (sequence, head), with the probabilities recomputed from lse.
#include "AttentionTiles.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc {
namespace {

// 48 x 128 probabilities and their gradients; for f32 heads of 64 features, scratch takes 280 KB in total.
constexpr int64_t gradQueryBlock = 48, gradKeyBlock = 128;

// The shapes and options of an attention gradient, and the strides of its rows in scratch.
struct GradientShape {
  const int64_t keyHeads, sharing, keyDim, valueDim; // `sharing` query heads share a key head
  const int64_t keyStride, valueStride, pairStride;
  const double scale, rate;
  const bool wantsQ, wantsK, wantsV, wantsBias;
  // A dq that is stored in a narrower type than is computed in cannot be summed there.
  const bool narrowQ;

  GradientShape(KernelBuilder &k, AttentionGradOp op, const AttentionTiles &tiles)
      : keyHeads(op.getKeyHeads()), sharing(static_cast<int64_t>(op.getHeads()) / keyHeads), keyDim(op.getKeyDim()),
        valueDim(op.getValueDim()), keyStride(tiles.padded(keyDim)), valueStride(tiles.padded(valueDim)),
        pairStride(gradKeyBlock + 16), // not a power of two, so that rows spread over the cache's sets
        scale(op.getScale().convertToDouble()), rate(op.getRate().convertToDouble()), wantsQ(!op.getDq().use_empty()),
        wantsK(!op.getDk().use_empty()), wantsV(!op.getDv().use_empty()),
        wantsBias(op.getDbias() && !op.getDbias().use_empty()),
        narrowQ(wantsQ && BufferIndex(op.getDq()).element() != k.element) {}
};

// Where the matrices of a block of queries and a block of keys are in scratch, whose size is in elements.
struct GradientScratch {
  int64_t size = 0;
  View probabilities, gradients, dQueries, dKeys, dValues, factors;
  AttentionTiles::Right queries, dOutputs, keys, keysTransposed, valuesTransposed;
};

class AttentionGradKernel {
public:
  AttentionGradKernel(KernelBuilder &k, AttentionGradOp op)
      : k(k), op(op),
        tiles(k, op.getCompute(), std::max({op.getKeyDim(), op.getValueDim(), gradKeyBlock, gradQueryBlock})),
        s(k, op, tiles) {}
  KernelInfo emit();

private:
  void clearKeys(HeadOfSequence &at);
  void head(HeadOfSequence &at);
  void queriesOfManyKeys(HeadOfSequence &at);
  void clearScratch(const View &data, int64_t width, Value count);
  void packKeys(HeadOfSequence &at, Value start, Value count);
  std::pair<Value, Value> seenKeys(HeadOfSequence &at, Value query, Value rows, Value start);
  void queryStep(HeadOfSequence &at, Value query, Value rows, Value start, Value count);
  void storeQueries(HeadOfSequence &at, Value query, Value rows, bool accumulate);
  void scoreGradients(HeadOfSequence &at, Value query, Value rows, Value start, Value count, bool sumsBias);
  void gradientRow(HeadOfSequence &at, Value firstQuery, Value r, Value start, Value count, bool sumsBias);
  View area(int64_t elements) {
    View begin = k.scratch + scratch.size;
    scratch.size += (elements + 31) / 32 * 32;
    return begin;
  }

  KernelBuilder &k;
  AttentionGradOp op;
  AttentionTiles tiles;
  const GradientShape s;
  GradientScratch scratch;
  std::optional<Distances> bias, biasSums;
};

KernelInfo AttentionGradKernel::emit() {
  HeadOfSequence at = HeadOfSequence::ofChunk(k, s.keyHeads);
  at.setReach(k, op.getReach(), /*cached=*/false);
  scratch.probabilities = area(gradQueryBlock * s.pairStride).inRows(s.pairStride);
  scratch.gradients = area(gradQueryBlock * s.pairStride).inRows(s.pairStride);
  auto elements = [&](int64_t count) { return area(count); };
  scratch.queries = tiles.right(elements, gradQueryBlock, s.keyDim, s.keyStride);
  scratch.dOutputs = tiles.right(elements, gradQueryBlock, s.valueDim, s.valueStride);
  scratch.dQueries = area(gradQueryBlock * s.keyStride).inRows(s.keyStride);
  scratch.keys = tiles.right(elements, gradKeyBlock, s.keyDim, s.keyStride);
  scratch.keysTransposed = tiles.right(elements, s.keyDim, gradKeyBlock, s.pairStride);
  scratch.valuesTransposed = tiles.right(elements, s.valueDim, gradKeyBlock, s.pairStride);
  scratch.dKeys = area(gradKeyBlock * s.keyStride).inRows(s.keyStride);
  scratch.dValues = area(gradKeyBlock * s.valueStride).inRows(s.valueStride);
  scratch.factors = area(gradKeyBlock);
  tiles.prepare(elements, gradKeyBlock);
  if (op.getBias()) {
    const int64_t distances = cast<RankedTensorType>(op.getBias().getType()).getDimSize(0);
    auto line = [&] { return Distances(k, at, area(Distances::size(distances)), distances); };
    bias.emplace(line());
    if (s.wantsBias)
      biasSums.emplace(line());
  }
  clearKeys(at);
  if (s.rate > 0)
    k.loop(0, gradKeyBlock, k.lanes(), [&](Value j) { k.storePart(1, scratch.factors + j, k.lanes()); });
  at.eachSharing(k, s.sharing, [&] { head(at); });
  return {{Partition::Unit::Sequences, 1, s.keyHeads}, scratch.size * k.bytes()};
}

// The dk and dv of heads that share keys accumulate head by head. Rows of the sequence that are not keys get a gradient
// of 0.
void AttentionGradKernel::clearKeys(HeadOfSequence &at) {
  auto clear = [&](BufferIndex buffer, int64_t width) {
    at.clearRowsThatAreNoKeys(k, buffer, width);
    if (s.sharing > 1)
      tiles.zeroOut(at.listedRows(k, buffer, width, k.index(0)), at.keys, width);
  };
  if (s.wantsK)
    clear(op.getDk(), s.keyDim);
  if (s.wantsV)
    clear(op.getDv(), s.valueDim);
}

void AttentionGradKernel::head(HeadOfSequence &at) {
  if (bias)
    bias->copyIn(op.getBiasMutable(), static_cast<int64_t>(op.getHeads()));
  if (biasSums)
    biasSums->clear();
  // dq accumulates over the blocks of keys.
  if (s.wantsQ)
    tiles.zeroOut(at.rows(k, op.getDq(), s.keyDim, at.firstQuery), at.queries, s.keyDim);
  k.loop(0, at.keys, gradKeyBlock, [&](Value j) {
    Value all = k.min(gradKeyBlock, k.sub(at.keys, j));
    packKeys(at, j, all);
    clearScratch(scratch.dKeys, s.keyStride, all);
    clearScratch(scratch.dValues, s.valueStride, all);
    k.loop(0, at.queries, gradQueryBlock, [&](Value i) {
      Value rows = k.min(gradQueryBlock, k.sub(at.queries, i));
      auto [count, any] = seenKeys(at, i, rows, j);
      k.when(any, [&, count = count] { queryStep(at, i, rows, j, count); });
    });
    const bool add = s.sharing > 1;
    if (s.wantsK)
      tiles.copyOut(at.listedRows(k, op.getDk(), s.keyDim, j), scratch.dKeys, all, s.keyDim, {}, add);
    if (s.wantsV)
      tiles.copyOut(at.listedRows(k, op.getDv(), s.valueDim, j), scratch.dValues, all, s.valueDim, {}, add);
  });
  if (biasSums)
    biasSums->copyOut(op.getDbias());
  if (s.narrowQ)
    k.when(k.less(gradKeyBlock, at.keys), [&] { queriesOfManyKeys(at); });
}

// How many keys of the block from `start` on a block of queries sees, and whether it sees any.
std::pair<Value, Value> AttentionGradKernel::seenKeys(HeadOfSequence &at, Value query, Value rows, Value start) {
  Value count = k.min(gradKeyBlock, k.sub(at.largestLimit(k, query, rows), start)), any = k.less(0, count);
  if (at.reach) {
    Value end = k.add(start, gradKeyBlock), first = at.first(k, query, k.index(0));
    any = k.both(any, k.less(first, end));
  }
  return {count, any};
}

// A second walk for the dq that a walk over blocks of keys would round once for each: here a block of queries meets all
// keys, for which the gradients of the scores are computed again. The keys of most sequences fit in one block.
void AttentionGradKernel::queriesOfManyKeys(HeadOfSequence &at) {
  k.loop(0, at.queries, gradQueryBlock, [&](Value i) {
    Value rows = k.min(gradQueryBlock, k.sub(at.queries, i));
    clearScratch(scratch.dQueries, s.keyStride, rows);
    k.loop(0, at.keys, gradKeyBlock, [&](Value j) {
      auto [count, any] = seenKeys(at, i, rows, j);
      k.when(any, [&, count = count] {
        packKeys(at, j, k.min(gradKeyBlock, k.sub(at.keys, j)));
        scoreGradients(at, i, rows, j, count, /*sumsBias=*/false);
        tiles.product(scratch.gradients, false, scratch.keys, scratch.dQueries, rows, s.keyStride / k.lanes(), count,
                      true);
      });
    });
    storeQueries(at, i, rows, /*accumulate=*/false);
  });
}

void AttentionGradKernel::clearScratch(const View &data, int64_t width, Value count) {
  k.loop(0, k.mul(count, width), k.lanes(), [&](Value i) { k.storePart(0, data + i, k.lanes()); });
}

void AttentionGradKernel::packKeys(HeadOfSequence &at, Value start, Value count) {
  tiles.copyIn(scratch.keys.rows, at.listedRows(k, op.getKMutable(), s.keyDim, start), count, s.keyDim);
  tiles.transposeIn(scratch.keysTransposed.rows, at.listedRows(k, op.getKMutable(), s.keyDim, start), count, s.keyDim);
  tiles.transposeIn(scratch.valuesTransposed.rows, at.listedRows(k, op.getVMutable(), s.valueDim, start), count,
                    s.valueDim);
  if (s.wantsQ)
    tiles.round(scratch.keys, count, s.keyStride / k.lanes());
  tiles.round(scratch.keysTransposed, s.keyDim, tiles.vectorsOf(count));
  tiles.round(scratch.valuesTransposed, s.valueDim, tiles.vectorsOf(count));
}

// Computes what gradientRow makes of a block of `rows` queries from `query` on and `count` keys from `start` on.
void AttentionGradKernel::scoreGradients(HeadOfSequence &at, Value query, Value rows, Value start, Value count,
                                         bool sumsBias) {
  Value firstRow = k.add(at.firstQuery, query), vectors = tiles.vectorsOf(count);
  tiles.copyIn(scratch.queries.rows, at.rows(k, op.getQMutable(), s.keyDim, firstRow), rows, s.keyDim, s.scale);
  tiles.copyIn(scratch.dOutputs.rows, at.rows(k, op.getDoutputMutable(), s.valueDim, firstRow), rows, s.valueDim);
  tiles.product(scratch.queries.rows, false, scratch.keysTransposed, scratch.probabilities, rows, vectors, s.keyDim,
                false);
  tiles.product(scratch.dOutputs.rows, false, scratch.valuesTransposed, scratch.gradients, rows, vectors, s.valueDim,
                false);
  k.loop(0, rows, 1, [&](Value r) {
    k.when(k.equal(start, 0), [&] {
      at.fetchNextHead(
          k, {{op.getQMutable(), s.keyDim}, {op.getOutputMutable(), s.valueDim}, {op.getDoutputMutable(), s.valueDim}},
          {{op.getKMutable(), s.keyDim}, {op.getVMutable(), s.valueDim}}, k.add(query, r));
    });
    gradientRow(at, query, r, start, count, sumsBias);
  });
}

// dq = scale * dQueries, or dq += it.
void AttentionGradKernel::storeQueries(HeadOfSequence &at, Value query, Value rows, bool accumulate) {
  Value factor = k.scalar(s.scale);
  tiles.copyOut(
      at.rows(k, op.getDq(), s.keyDim, k.add(at.firstQuery, query)), scratch.dQueries, rows, s.keyDim,
      [&](Value) { return factor; }, accumulate);
}

// Processes a block of queries against a block of keys.
void AttentionGradKernel::queryStep(HeadOfSequence &at, Value query, Value rows, Value start, Value count) {
  const int64_t keyVectors = s.keyStride / k.lanes(), valueVectors = s.valueStride / k.lanes();
  scoreGradients(at, query, rows, start, count, s.wantsBias);
  if (s.wantsV) {
    tiles.round(scratch.dOutputs, rows, valueVectors);
    tiles.product(scratch.probabilities, true, scratch.dOutputs, scratch.dValues, count, valueVectors, rows, true);
  }
  if (s.wantsK) {
    tiles.round(scratch.queries, rows, keyVectors);
    tiles.product(scratch.gradients, true, scratch.queries, scratch.dKeys, count, keyVectors, rows, true);
  }
  auto addToQueries = [&] {
    tiles.product(scratch.gradients, false, scratch.keys, scratch.dQueries, rows, keyVectors, count, false);
    storeQueries(at, query, rows, /*accumulate=*/true);
  };
  if (s.narrowQ)
    k.when(k.less(at.keys, gradKeyBlock + 1), addToQueries);
  else if (s.wantsQ)
    addToQueries();
}

// With the scores s, dp = do v^T, p = exp(s - lse) and the dropout factor m: the scores become p m, the gradients
// p (m dp - do o). Both are 0 where the query does not see the key.
void AttentionGradKernel::gradientRow(HeadOfSequence &at, Value firstQuery, Value r, Value start, Value count,
                                      bool sumsBias) {
  KernelBuilder::SumLanes wide(k);
  const int64_t lanes = k.lanes();
  Value query = k.add(firstQuery, r), row = k.add(at.firstQuery, query), zero = k.index(0);
  View pRow = scratch.probabilities.row(r), gRow = scratch.gradients.row(r);
  View outputRow = at.rows(k, op.getOutputMutable(), s.valueDim, row)(zero), dRow = scratch.dOutputs.rows.row(r);
  Values product = k.features(s.valueDim, k.splat(0), [&](Value f, int64_t used, Values sum) -> Values {
    Value d = tiles.rounded(k.load(dRow + f, lanes));
    return {k.fma(k.loadPart(outputRow + f, used), d, sum[0])};
  });
  Value inner = k.broadcast(k.sum(product[0]));
  Value logSum = k.broadcast(k.load(at.rows(k, op.getLseMutable(), 1, row)(zero)));
  Value first = at.first(k, query, start), limit = at.limit(k, query, start);
  if (s.rate > 0) {
    Value seesAny = k.less(0, limit);
    k.when(k.both(k.training(), seesAny), [&] { tiles.keepFactors(scratch.factors, at, query, start, count, s.rate); });
  }
  if (bias)
    bias->addTo(pRow, query, start, count);
  k.loop(0, count, lanes, [&](Value j) {
    View pAt = pRow + j, gAt = gRow + j;
    Value hidden = k.splat(0);
    auto seen = [&](Value x) { return at.seen(k, j, first, limit, x, hidden); };
    Value p = seen(k.exp(k.subf(k.load(pAt, lanes), logSum))), dropped = p;
    Value g = k.load(gAt, lanes);
    if (s.rate > 0) {
      Value m = k.load(scratch.factors + j, lanes);
      dropped = k.mulf(p, m);
      g = k.mulf(g, m);
    }
    k.store(dropped, pAt);
    k.store(seen(k.mulf(p, k.subf(g, inner))), gAt);
  });
  if (sumsBias)
    biasSums->addFrom(gRow, query, start, count);
}

} // namespace

static std::optional<KernelInfo> emitAttentionGrad(KernelBuilder &k, AttentionGradOp op) {
  if (!AttentionTiles::computesIn(k, op.getCompute()))
    return std::nullopt;
  return AttentionGradKernel(k, op).emit();
}

void attachAttentionGradKernels(MLIRContext &context) { attachKernels<emitAttentionGrad>(context); }

} // namespace xfc
