// xfc.attention_grad: dq, dk, dv and dbias for each (sequence, head), with the probabilities recomputed from lse.
#include "AttentionTiles.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc {
namespace {

// 48 x 128 probabilities and their gradients; for f32 heads of 64 features, scratch takes 280 KB in total.
constexpr int64_t queryBlock = 48, keyBlock = 128;

class AttentionGradKernel {
public:
  AttentionGradKernel(KernelBuilder &k, AttentionGradOp op);
  Backend::KernelInfo emit();

private:
  void clearKeys(HeadOfSequence &at);
  void head(HeadOfSequence &at);
  void clearScratch(Value data, int64_t width, Value count);
  void packKeys(HeadOfSequence &at, Value start, Value count);
  void queryStep(HeadOfSequence &at, Value query, Value rows, Value start, Value count);
  void gradientRow(HeadOfSequence &at, Value firstQuery, Value r, Value start, Value count);
  Value area(int64_t elements) {
    Value begin = k.offset(k.scratch, size);
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
  enum { dOutput, q, key, value, output, lse };
  int64_t size = 0; // elements of scratch
  Value probabilities, gradients, dQueries, dKeys, dValues, factors;
  AttentionTiles::Right queries, dOutputs, keys, keysTransposed, valuesTransposed;
  std::optional<Distances> bias, biasSums;
};

AttentionGradKernel::AttentionGradKernel(KernelBuilder &k, AttentionGradOp op)
    : k(k), op(op), tiles(k, op.getCompute(), std::max({op.getKeyDim(), op.getValueDim(), keyBlock, queryBlock})),
      keyHeads(op.getKeyHeads()), sharing(static_cast<int64_t>(op.getHeads()) / keyHeads), keyDim(op.getKeyDim()),
      valueDim(op.getValueDim()) {
  keyStride = tiles.padded(keyDim);
  valueStride = tiles.padded(valueDim);
  pairStride = keyBlock + 16; // not a power of two, so that rows spread over the cache's sets
  scale = op.getScale().convertToDouble();
  rate = op.getRate().convertToDouble();
  wantsQ = !op.getDq().use_empty();
  wantsK = !op.getDk().use_empty();
  wantsV = !op.getDv().use_empty();
  wantsBias = op.getDbias() && !op.getDbias().use_empty();
}

Backend::KernelInfo AttentionGradKernel::emit() {
  HeadOfSequence at(k, keyHeads);
  at.setReach(k, op.getReach());
  probabilities = area(queryBlock * pairStride);
  gradients = area(queryBlock * pairStride);
  auto elements = [&](int64_t count) { return area(count); };
  queries = tiles.right(elements, queryBlock, keyDim, keyStride);
  dOutputs = tiles.right(elements, queryBlock, valueDim, valueStride);
  dQueries = area(queryBlock * keyStride);
  keys = tiles.right(elements, keyBlock, keyDim, keyStride);
  keysTransposed = tiles.right(elements, keyDim, keyBlock, pairStride);
  valuesTransposed = tiles.right(elements, valueDim, keyBlock, pairStride);
  dKeys = area(keyBlock * keyStride);
  dValues = area(keyBlock * valueStride);
  factors = area(keyBlock);
  tiles.prepare(elements, keyBlock);
  if (op.getBias()) {
    const int64_t distances = cast<RankedTensorType>(op.getBias().getType()).getDimSize(0);
    auto line = [&] { return Distances(k, at, area(Distances::size(distances)), distances); };
    bias.emplace(line());
    if (wantsBias)
      biasSums.emplace(line());
  }
  clearKeys(at);
  if (rate > 0)
    k.loop(k.index(0), k.index(keyBlock), k.lanes(), [&](Value j) { k.store(k.splat(1), k.offset(factors, j)); });
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
  Value zero = k.index(0);
  k.loop(zero, at.keys, keyBlock, [&](Value j) {
    Value all = k.min(k.index(keyBlock), k.sub(at.keys, j));
    packKeys(at, j, all);
    clearScratch(dKeys, keyStride, all);
    clearScratch(dValues, valueStride, all);
    k.loop(zero, at.queries, queryBlock, [&](Value i) {
      Value rows = k.min(k.index(queryBlock), k.sub(at.queries, i));
      Value count = k.min(k.index(keyBlock), k.sub(at.largestLimit(k, i, rows), j)), any = k.less(zero, count);
      if (at.reach)
        any = k.both(any, k.less(at.first(k, i, zero), k.add(j, keyBlock)));
      k.when(any, [&] { queryStep(at, i, rows, j, count); });
    });
    const bool add = sharing > 1;
    if (wantsK)
      tiles.copyOut(at.listedRows(k, op.getDk(), keyDim, j), dKeys, keyStride, all, keyDim, {}, add);
    if (wantsV)
      tiles.copyOut(at.listedRows(k, op.getDv(), valueDim, j), dValues, valueStride, all, valueDim, {}, add);
  });
  if (biasSums)
    biasSums->copyOut(op.getDbias());
}

void AttentionGradKernel::clearScratch(Value data, int64_t width, Value count) {
  k.loop(k.index(0), k.mul(count, width), k.lanes(), [&](Value i) { k.store(k.splat(0), k.offset(data, i)); });
}

void AttentionGradKernel::packKeys(HeadOfSequence &at, Value start, Value count) {
  tiles.copyIn(keys.rows.data, keyStride, at.listedRows(k, key, keyDim, start), count, keyDim);
  tiles.transposeIn(keysTransposed.rows.data, pairStride, at.listedRows(k, key, keyDim, start), count, keyDim);
  tiles.transposeIn(valuesTransposed.rows.data, pairStride, at.listedRows(k, value, valueDim, start), count, valueDim);
  if (wantsQ)
    tiles.round(keys, count, k.index(keyStride / k.lanes()));
  tiles.round(keysTransposed, k.index(keyDim), tiles.vectorsOf(count));
  tiles.round(valuesTransposed, k.index(valueDim), tiles.vectorsOf(count));
}

// Processes a block of `rows` queries from `query` on, against `count` keys from `start` on.
void AttentionGradKernel::queryStep(HeadOfSequence &at, Value query, Value rows, Value start, Value count) {
  Value zero = k.index(0), no = k.boolean(false), yes = k.boolean(true), firstRow = k.add(at.firstQuery, query);
  Value vectors = tiles.vectorsOf(count), pairs = k.index(pairStride);
  auto whole = [&](int64_t width) { return k.index(width / k.lanes()); };
  tiles.copyIn(queries.rows.data, keyStride, at.rows(k, q, keyDim, firstRow), rows, keyDim, k.scalar(scale));
  tiles.copyIn(dOutputs.rows.data, valueStride, at.rows(k, dOutput, valueDim, firstRow), rows, valueDim);
  AttentionTiles::Matrix p{probabilities, pairs}, dp{gradients, pairs}, dqs{dQueries, k.index(keyStride)};
  tiles.product(queries.rows, false, keysTransposed, p, rows, vectors, k.index(keyDim), no);
  tiles.product(dOutputs.rows, false, valuesTransposed, dp, rows, vectors, k.index(valueDim), no);
  k.loop(zero, rows, 1, [&](Value r) { gradientRow(at, query, r, start, count); });
  if (wantsV) {
    tiles.round(dOutputs, rows, whole(valueStride));
    tiles.product(p, true, dOutputs, {dValues, k.index(valueStride)}, count, whole(valueStride), rows, yes);
  }
  if (wantsK) {
    tiles.round(queries, rows, whole(keyStride));
    tiles.product(dp, true, queries, {dKeys, k.index(keyStride)}, count, whole(keyStride), rows, yes);
  }
  if (wantsQ) {
    tiles.product(dp, false, keys, dqs, rows, whole(keyStride), count, no);
    Value factor = k.scalar(scale);
    tiles.copyOut(
        at.rows(k, op.getDq(), keyDim, firstRow), dQueries, keyStride, rows, keyDim, [&](Value) { return factor; },
        /*accumulate=*/true);
  }
}

// With the scores s, dp = do v^T, p = exp(s - lse) and the dropout factor m: the scores become p m, the gradients
// p (m dp - do o). Both are 0 where the query does not see the key.
void AttentionGradKernel::gradientRow(HeadOfSequence &at, Value firstQuery, Value r, Value start, Value count) {
  KernelBuilder::SumLanes wide(k);
  const int64_t lanes = k.lanes();
  Value query = k.add(firstQuery, r), row = k.add(at.firstQuery, query), zero = k.index(0);
  Value pRow = k.offset(probabilities, k.mul(r, pairStride)), gRow = k.offset(gradients, k.mul(r, pairStride));
  Value outputRow = at.rows(k, output, valueDim, row)(zero), dRow = k.offset(dOutputs.rows.data, k.mul(r, valueStride));
  Values product = k.features(valueDim, ValueRange{k.splat(0)}, [&](Value f, int64_t used, Values s) -> Values {
    return {k.fma(k.loadPart(k.offset(outputRow, f), used), tiles.rounded(k.load(k.offset(dRow, f), lanes)), s[0])};
  });
  Value inner = k.broadcast(k.sum(product[0]));
  Value logSum = k.broadcast(k.load(at.rows(k, lse, 1, row)(zero)));
  Value first = at.first(k, query, start), limit = at.limit(k, query, start);
  if (rate > 0)
    k.when(k.both(k.training(), k.less(zero, limit)),
           [&] { tiles.keepFactors(factors, at, query, start, count, rate); });
  if (bias)
    bias->addTo(pRow, query, start, count);
  k.loop(zero, count, lanes, [&](Value j) {
    Value pAt = k.offset(pRow, j), gAt = k.offset(gRow, j);
    auto seen = [&](Value x) { return at.seen(k, j, first, limit, x, k.splat(0)); };
    Value p = seen(k.exp(k.subf(k.load(pAt, lanes), logSum))), dropped = p;
    Value g = k.load(gAt, lanes);
    if (rate > 0) {
      Value m = k.load(k.offset(factors, j), lanes);
      dropped = k.mulf(p, m);
      g = k.mulf(g, m);
    }
    k.store(dropped, pAt);
    k.store(seen(k.mulf(p, k.subf(g, inner))), gAt);
  });
  if (wantsBias)
    biasSums->addFrom(gRow, query, start, count);
}

} // namespace

static std::optional<Backend::KernelInfo> emitAttentionGrad(KernelBuilder &k, AttentionGradOp op) {
  if (!AttentionTiles::computesIn(k, op.getCompute()))
    return std::nullopt;
  return AttentionGradKernel(k, op).emit();
}

void attachAttentionGradKernels(MLIRContext &context) { attachKernels<emitAttentionGrad>(context); }

} // namespace xfc
