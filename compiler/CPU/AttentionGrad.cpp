// xfc.attention_grad: dq, dk, dv and dbias for each (sequence, head), with the probabilities recomputed from lse.
#include "AttentionTiles.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc {
namespace {

// 48 x 128 probabilities and their gradients; for f32 heads of 64 features, scratch takes 280 KB in total.
constexpr int64_t gradQueryBlock = 48, gradKeyBlock = 128;

class AttentionGradKernel {
public:
  AttentionGradKernel(KernelBuilder &k, AttentionGradOp op);
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
    View begin = k.scratch + size;
    size += (elements + 31) / 32 * 32;
    return begin;
  }

  KernelBuilder &k;
  AttentionGradOp op;
  AttentionTiles tiles;
  const int64_t keyHeads, sharing, keyDim, valueDim; // `sharing` query heads share a key head
  int64_t keyStride, valueStride, pairStride;
  double scale, rate;
  bool wantsQ, wantsK, wantsV, wantsBias;
  // A dq that is stored in a narrower type than is computed in cannot be summed there.
  bool narrowQ;
  const BufferIndex dOutput, q, key, value, output, lse;
  int64_t size = 0; // elements of scratch
  View probabilities, gradients, dQueries, dKeys, dValues, factors;
  AttentionTiles::Right queries, dOutputs, keys, keysTransposed, valuesTransposed;
  std::optional<Distances> bias, biasSums;
};

AttentionGradKernel::AttentionGradKernel(KernelBuilder &k, AttentionGradOp op)
    : k(k), op(op),
      tiles(k, op.getCompute(), std::max({op.getKeyDim(), op.getValueDim(), gradKeyBlock, gradQueryBlock})),
      keyHeads(op.getKeyHeads()), sharing(static_cast<int64_t>(op.getHeads()) / keyHeads), keyDim(op.getKeyDim()),
      valueDim(op.getValueDim()), dOutput(op.getDoutputMutable()), q(op.getQMutable()), key(op.getKMutable()),
      value(op.getVMutable()), output(op.getOutputMutable()), lse(op.getLseMutable()) {
  keyStride = tiles.padded(keyDim);
  valueStride = tiles.padded(valueDim);
  pairStride = gradKeyBlock + 16; // not a power of two, so that rows spread over the cache's sets
  scale = op.getScale().convertToDouble();
  rate = op.getRate().convertToDouble();
  wantsQ = !op.getDq().use_empty();
  narrowQ = wantsQ && BufferIndex(op.getDq()).element() != k.element;
  wantsK = !op.getDk().use_empty();
  wantsV = !op.getDv().use_empty();
  wantsBias = op.getDbias() && !op.getDbias().use_empty();
}

KernelInfo AttentionGradKernel::emit() {
  HeadOfSequence at(k, keyHeads);
  at.setReach(k, op.getReach());
  probabilities = area(gradQueryBlock * pairStride).inRows(pairStride);
  gradients = area(gradQueryBlock * pairStride).inRows(pairStride);
  auto elements = [&](int64_t count) { return area(count); };
  queries = tiles.right(elements, gradQueryBlock, keyDim, keyStride);
  dOutputs = tiles.right(elements, gradQueryBlock, valueDim, valueStride);
  dQueries = area(gradQueryBlock * keyStride).inRows(keyStride);
  keys = tiles.right(elements, gradKeyBlock, keyDim, keyStride);
  keysTransposed = tiles.right(elements, keyDim, gradKeyBlock, pairStride);
  valuesTransposed = tiles.right(elements, valueDim, gradKeyBlock, pairStride);
  dKeys = area(gradKeyBlock * keyStride).inRows(keyStride);
  dValues = area(gradKeyBlock * valueStride).inRows(valueStride);
  factors = area(gradKeyBlock);
  tiles.prepare(elements, gradKeyBlock);
  if (op.getBias()) {
    const int64_t distances = cast<RankedTensorType>(op.getBias().getType()).getDimSize(0);
    auto line = [&] { return Distances(k, at, area(Distances::size(distances)), distances); };
    bias.emplace(line());
    if (wantsBias)
      biasSums.emplace(line());
  }
  clearKeys(at);
  if (rate > 0)
    k.loop(0, gradKeyBlock, k.lanes(), [&](Value j) { k.storePart(1, factors + j, k.lanes()); });
  at.eachSharing(k, sharing, [&] { head(at); });
  return {{Partition::Unit::Sequences, 1, keyHeads}, size * k.bytes()};
}

// The dk and dv of heads that share keys accumulate head by head. Rows of the sequence that are not keys get a gradient
// of 0.
void AttentionGradKernel::clearKeys(HeadOfSequence &at) {
  auto clear = [&](BufferIndex buffer, int64_t width) {
    at.clearRowsThatAreNoKeys(k, buffer, width);
    if (sharing > 1)
      tiles.zeroOut(at.listedRows(k, buffer, width, k.index(0)), at.keys, width);
  };
  if (wantsK)
    clear(op.getDk(), keyDim);
  if (wantsV)
    clear(op.getDv(), valueDim);
}

void AttentionGradKernel::head(HeadOfSequence &at) {
  if (bias)
    bias->copyIn(op.getBiasMutable(), static_cast<int64_t>(op.getHeads()));
  if (biasSums)
    biasSums->clear();
  // dq accumulates over the blocks of keys.
  if (wantsQ)
    tiles.zeroOut(at.rows(k, op.getDq(), keyDim, at.firstQuery), at.queries, keyDim);
  k.loop(0, at.keys, gradKeyBlock, [&](Value j) {
    Value all = k.min(gradKeyBlock, k.sub(at.keys, j));
    packKeys(at, j, all);
    clearScratch(dKeys, keyStride, all);
    clearScratch(dValues, valueStride, all);
    k.loop(0, at.queries, gradQueryBlock, [&](Value i) {
      Value rows = k.min(gradQueryBlock, k.sub(at.queries, i));
      auto [count, any] = seenKeys(at, i, rows, j);
      k.when(any, [&, count = count] { queryStep(at, i, rows, j, count); });
    });
    const bool add = sharing > 1;
    if (wantsK)
      tiles.copyOut(at.listedRows(k, op.getDk(), keyDim, j), dKeys, all, keyDim, {}, add);
    if (wantsV)
      tiles.copyOut(at.listedRows(k, op.getDv(), valueDim, j), dValues, all, valueDim, {}, add);
  });
  if (biasSums)
    biasSums->copyOut(op.getDbias());
  if (narrowQ)
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
    clearScratch(dQueries, keyStride, rows);
    k.loop(0, at.keys, gradKeyBlock, [&](Value j) {
      auto [count, any] = seenKeys(at, i, rows, j);
      k.when(any, [&, count = count] {
        packKeys(at, j, k.min(gradKeyBlock, k.sub(at.keys, j)));
        scoreGradients(at, i, rows, j, count, /*sumsBias=*/false);
        tiles.product(gradients, false, keys, dQueries, rows, keyStride / k.lanes(), count, true);
      });
    });
    storeQueries(at, i, rows, /*accumulate=*/false);
  });
}

void AttentionGradKernel::clearScratch(const View &data, int64_t width, Value count) {
  k.loop(0, k.mul(count, width), k.lanes(), [&](Value i) { k.storePart(0, data + i, k.lanes()); });
}

void AttentionGradKernel::packKeys(HeadOfSequence &at, Value start, Value count) {
  tiles.copyIn(keys.rows, at.listedRows(k, key, keyDim, start), count, keyDim);
  tiles.transposeIn(keysTransposed.rows, at.listedRows(k, key, keyDim, start), count, keyDim);
  tiles.transposeIn(valuesTransposed.rows, at.listedRows(k, value, valueDim, start), count, valueDim);
  if (wantsQ)
    tiles.round(keys, count, keyStride / k.lanes());
  tiles.round(keysTransposed, keyDim, tiles.vectorsOf(count));
  tiles.round(valuesTransposed, valueDim, tiles.vectorsOf(count));
}

// Computes what gradientRow makes of a block of `rows` queries from `query` on and `count` keys from `start` on.
void AttentionGradKernel::scoreGradients(HeadOfSequence &at, Value query, Value rows, Value start, Value count,
                                         bool sumsBias) {
  Value firstRow = k.add(at.firstQuery, query), vectors = tiles.vectorsOf(count);
  tiles.copyIn(queries.rows, at.rows(k, q, keyDim, firstRow), rows, keyDim, scale);
  tiles.copyIn(dOutputs.rows, at.rows(k, dOutput, valueDim, firstRow), rows, valueDim);
  tiles.product(queries.rows, false, keysTransposed, probabilities, rows, vectors, keyDim, false);
  tiles.product(dOutputs.rows, false, valuesTransposed, gradients, rows, vectors, valueDim, false);
  k.loop(0, rows, 1, [&](Value r) { gradientRow(at, query, r, start, count, sumsBias); });
}

// dq = scale * dQueries, or dq += it.
void AttentionGradKernel::storeQueries(HeadOfSequence &at, Value query, Value rows, bool accumulate) {
  Value factor = k.scalar(scale);
  tiles.copyOut(
      at.rows(k, op.getDq(), keyDim, k.add(at.firstQuery, query)), dQueries, rows, keyDim,
      [&](Value) { return factor; }, accumulate);
}

// Processes a block of queries against a block of keys.
void AttentionGradKernel::queryStep(HeadOfSequence &at, Value query, Value rows, Value start, Value count) {
  const int64_t keyVectors = keyStride / k.lanes(), valueVectors = valueStride / k.lanes();
  scoreGradients(at, query, rows, start, count, wantsBias);
  if (wantsV) {
    tiles.round(dOutputs, rows, valueVectors);
    tiles.product(probabilities, true, dOutputs, dValues, count, valueVectors, rows, true);
  }
  if (wantsK) {
    tiles.round(queries, rows, keyVectors);
    tiles.product(gradients, true, queries, dKeys, count, keyVectors, rows, true);
  }
  auto addToQueries = [&] {
    tiles.product(gradients, false, keys, dQueries, rows, keyVectors, count, false);
    storeQueries(at, query, rows, /*accumulate=*/true);
  };
  if (narrowQ)
    k.when(k.less(at.keys, gradKeyBlock + 1), addToQueries);
  else if (wantsQ)
    addToQueries();
}

// With the scores s, dp = do v^T, p = exp(s - lse) and the dropout factor m: the scores become p m, the gradients
// p (m dp - do o). Both are 0 where the query does not see the key.
void AttentionGradKernel::gradientRow(HeadOfSequence &at, Value firstQuery, Value r, Value start, Value count,
                                      bool sumsBias) {
  KernelBuilder::SumLanes wide(k);
  const int64_t lanes = k.lanes();
  Value query = k.add(firstQuery, r), row = k.add(at.firstQuery, query), zero = k.index(0);
  View pRow = probabilities.row(r), gRow = gradients.row(r);
  View outputRow = at.rows(k, output, valueDim, row)(zero), dRow = dOutputs.rows.row(r);
  Values product = k.features(valueDim, k.splat(0), [&](Value f, int64_t used, Values s) -> Values {
    Value d = tiles.rounded(k.load(dRow + f, lanes));
    return {k.fma(k.loadPart(outputRow + f, used), d, s[0])};
  });
  Value inner = k.broadcast(k.sum(product[0]));
  Value logSum = k.broadcast(k.load(at.rows(k, lse, 1, row)(zero)));
  Value first = at.first(k, query, start), limit = at.limit(k, query, start);
  if (rate > 0) {
    Value seesAny = k.less(0, limit);
    k.when(k.both(k.training(), seesAny), [&] { tiles.keepFactors(factors, at, query, start, count, rate); });
  }
  if (bias)
    bias->addTo(pRow, query, start, count);
  k.loop(0, count, lanes, [&](Value j) {
    View pAt = pRow + j, gAt = gRow + j;
    Value hidden = k.splat(0);
    auto seen = [&](Value x) { return at.seen(k, j, first, limit, x, hidden); };
    Value p = seen(k.exp(k.subf(k.load(pAt, lanes), logSum))), dropped = p;
    Value g = k.load(gAt, lanes);
    if (rate > 0) {
      Value m = k.load(factors + j, lanes);
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
