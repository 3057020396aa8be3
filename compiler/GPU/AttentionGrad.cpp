// xfc.attention_grad: dq, dk, dv with the probabilities computed again from lse; every number of them has one owner,
// who adds in one order.
#include "AttentionTiles.h"
#include "Emitters.h"
#include <numbers>

using namespace mlir;

namespace xfc::gpu {
namespace {

// With p the probabilities, m dropout's factors and D = do . o: dv = (m p)^T do, ds = p (m do v^T - D), dq = scale ds
// k, dk = scale ds^T q. Blocks of threads are of two kinds. One has a block of queries and walks over the keys: dq. The
// other has a block of keys and walks over the queries, with scores transposed, so that dv and dk are sums over columns
// as dq is: nothing is added to memory, for two products more.
class AttentionGradKernel {
public:
  AttentionGradKernel(KernelBuilder &k, AttentionGradOp op);
  Backend::KernelInfo emit();

private:
  void queryBlock(HeadOfSequence &at, Value start);
  void keyBlock(HeadOfSequence &at, Value start, Value count);
  Value deltaOf(HeadOfSequence &at, Value query, int64_t lanes);

  KernelBuilder &k;
  AttentionGradOp op;
  const bool bf16;
  AttentionTiles tiles;
  int64_t heads, keyHeads, keyDim, valueDim;
  double scale, rate;
  bool wantsQ, wantsK, wantsV;
  enum { dOutput, q, key, value, output, lse, dq, dk, dv };
  // Rows that stay, and rows that pass by at a time.
  int64_t own, passing;
};

AttentionGradKernel::AttentionGradKernel(KernelBuilder &k, AttentionGradOp op)
    : k(k), op(op), bf16(op.getCompute().has_value()), tiles(k, bf16) {
  heads = op.getHeads();
  keyHeads = op.getKeyHeads();
  keyDim = op.getKeyDim();
  valueDim = op.getValueDim();
  scale = op.getScale().convertToDouble();
  rate = op.getRate().convertToDouble();
  wantsQ = !op.getDq().use_empty();
  wantsK = !op.getDk().use_empty();
  wantsV = !op.getDv().use_empty();
  // What fits the registers and 99 KB.
  const bool wide = std::max(keyDim, valueDim) > 64;
  own = bf16 || !wide ? 64 : 32;
  passing = bf16 && !wide ? 64 : 32;
}

Backend::KernelInfo AttentionGradKernel::emit() {
  k.threads = own / AttentionTiles::warpRows * k.warpSize;
  k.registers = 255;
  const bool wantsKeys = wantsK || wantsV, both = wantsQ && wantsKeys;
  // The heads of queries come first among the parts of a block of rows; they are a multiple of those of keys.
  const int64_t queryParts = wantsQ ? heads : 0, parts = queryParts + (wantsKeys ? keyHeads : 0);
  Value part = k.div(k.chunk, parts), rest = k.rem(k.chunk, parts);
  const int64_t mark = k.sharedMark();
  auto overQueries = [&] {
    eachQueryBlockOfRows(k, part, rest, own, [&](HeadOfSequence &at, Value start) {
      at.shareKeys(k, heads / keyHeads);
      at.setReach(k, op.getReach(), /*cached=*/false);
      queryBlock(at, start);
    });
  };
  // The owner of a sequence's n-th block of queries, of m, has its blocks of keys n, n + m, ..
  auto overKeys = [&] {
    k.releaseShared(mark);
    eachQueryBlockOfRows(k, part, k.rem(rest, keyHeads), own, [&](HeadOfSequence &at, Value start) {
      at.setReach(k, op.getReach(), /*cached=*/false);
      Value blocks = k.div(k.add(at.queries, own - 1), own), step = k.mul(blocks, own);
      // Where there is no key, the first block clears the rows.
      Value count = k.max(k.sub(k.max(at.keys, k.i32Of(1)), start), k.i32Of(0));
      // ceil(count / step)
      Value times =
          k.ptx("div.u32 $0, $1, $2;", {k.add(count, k.sub(step, k.i32Of(1))), step}, {k.i32}, /*pure=*/true)[0];
      k.loop(k.i32Of(0), times, 1, [&](Value i) {
        Value first = k.add(start, k.mul(i, step)),
              count = k.max(k.min(k.sub(at.keys, first), k.i32Of(own)), k.i32Of(0));
        SmallVector<std::pair<BufferIndex, int64_t>> results;
        if (wantsK)
          results.push_back({dk, keyDim});
        if (wantsV)
          results.push_back({dv, valueDim});
        at.clearRowsThatAreNoKeys(k, first, count, results);
        k.when(k.less(k.i32Of(0), count), [&] { keyBlock(at, first, count); });
      });
    });
  };
  if (both)
    k.when(k.less(rest, k.index(heads)), overQueries, overKeys);
  else if (wantsQ)
    overQueries();
  else
    overKeys();
  return {{Partition::Unit::Rows, own, parts}};
}

// do . o of a query, of which `lanes` neighbours each have a part.
Value AttentionGradKernel::deltaOf(HeadOfSequence &at, Value query, int64_t lanes) {
  Value d = at.rows(k, dOutput, valueDim, k.i32Of(0))(query), o = at.rows(k, output, valueDim, k.i32Of(0))(query);
  Value first = k.bitAnd(k.thread(), lanes - 1);
  Value sum = k.loop(
      first, k.i32Of(static_cast<int32_t>(valueDim)), lanes, ValueRange{k.scalar(0)},
      [&](Value f, Values s) -> Values { return {k.fma(k.load(k.offset(d, f)), k.load(k.offset(o, f)), s[0])}; })[0];
  return k.warpSum(sum, lanes);
}

void AttentionGradKernel::queryBlock(HeadOfSequence &at, Value start) {
  Tile queryTile = tiles.tile(own, keyDim), dOutputTile = tiles.tile(own, valueDim);
  Tile keyTile = tiles.tile(passing, keyDim), valueTile = tiles.tile(passing, valueDim), room;
  if (!bf16)
    room = tiles.tile(own, passing);
  Value left = k.min(k.sub(at.queries, start), k.i32Of(own)), last = k.sub(left, k.i32Of(1));
  std::array<Value, 2> rows, firsts, limits, logSums, deltas;
  RowAt lseAt = at.rows(k, lse, 1, k.i32Of(0));
  PairDropout dropout(k, tiles, at, rate);
  for (int64_t r = 0; r < 2; ++r) {
    rows[r] = k.add(start, k.min(tiles.row(r), last));
    limits[r] = k.select(k.less(tiles.row(r), left), at.limit(k, rows[r]), k.i32Of(0));
    firsts[r] = at.first(k, rows[r]);
    logSums[r] = k.mulf(k.load(lseAt(rows[r])), k.scalar(std::numbers::log2e));
    deltas[r] = deltaOf(at, rows[r], 4);
  }
  Value largestLimit = at.largestLimit(k, start, left, own), warpLimit = tiles.largestOfRows(limits);
  k.barrier();
  tiles.copyIn(queryTile, at.rows(k, q, keyDim, start), left, q, keyDim, k.scalar(scale * std::numbers::log2e));
  tiles.copyIn(dOutputTile, at.rows(k, dOutput, valueDim, start), left, dOutput, valueDim);
  Value begin = at.firstBlock(k, start, passing);
  Values sums = k.loop(begin, largestLimit, passing, tiles.zeros(queryTile.width), [&](Value j, Values dQueries) {
    Value count = k.min(k.sub(at.keys, j), k.i32Of(passing));
    k.barrier();
    tiles.copyIn(keyTile, at.listedRows(k, key, keyDim, j), count, key, keyDim);
    tiles.copyIn(valueTile, at.listedRows(k, value, valueDim, j), count, value, valueDim);
    k.barrier();
    return k.choose(
        k.less(j, warpLimit),
        [&] {
          Values s = tiles.productTransposed(tiles.zeros(passing), tiles.rowsOf(queryTile), keyTile);
          Values d = tiles.productTransposed(tiles.zeros(passing), tiles.rowsOf(dOutputTile), valueTile);
          Value kept = dropout.ofQueries(rows, j, count, passing), factor = dropout.scale();
          Value first = k.add(j, tiles.column(0));
          const Value seen[2] = {k.sub(limits[0], first), k.sub(limits[1], first)};
          const Value before[2] = {k.sub(firsts[0], first), k.sub(firsts[1], first)};
          for (size_t i = 0; i < s.size(); ++i) {
            const int64_t r = tiles.rowOf(i);
            Value p = k.exp2(k.subf(s[i], logSums[r]));
            Value ds = k.mulf(p, k.subf(k.mulf(dropout.dropped(d[i], kept, i), factor), deltas[r]));
            Value column = k.i32Of(static_cast<int32_t>(tiles.columnOf(i)));
            s[i] = k.select(k.less(column, seen[r]), ds, k.scalar(0));
            if (at.reach)
              s[i] = k.select(k.less(column, before[r]), k.scalar(0), s[i]);
          }
          return tiles.product(dQueries, tiles.rowsOf(s, room), keyTile, count);
        },
        [&] { return dQueries; });
  });
  Value factor = k.scalar(scale);
  tiles.copyOut(at.rows(k, dq, keyDim, start), sums, left, dq, keyDim, {factor, factor});
}

void AttentionGradKernel::keyBlock(HeadOfSequence &at, Value start, Value count) {
  AttentionTiles tiles(k, bf16);
  tiles.spreadRows(); // for dropout
  Tile keyTile = tiles.tile(own, keyDim), valueTile = tiles.tile(own, valueDim);
  Tile queryTile = tiles.tile(passing, keyDim), dOutputTile = tiles.tile(passing, valueDim), room;
  if (!bf16)
    room = tiles.tile(own, passing);
  // Those of the queries that pass by.
  Value logSums = k.shared(passing * 4), deltas = k.shared(passing * 4), limits = k.shared(passing * 4);
  Value firsts = at.reach ? k.shared(passing * 4) : Value();
  Value last = k.sub(count, k.i32Of(1));
  std::array<Value, 2> rows;
  for (int64_t r = 0; r < 2; ++r)
    rows[r] = k.add(start, k.min(tiles.row(r), last));
  Value firstOfWarp = k.add(start, tiles.firstRow());
  k.barrier(); // the tiles may hold the block before
  tiles.copyIn(keyTile, at.listedRows(k, key, keyDim, start), count, key, keyDim);
  tiles.copyIn(valueTile, at.listedRows(k, value, valueDim, start), count, value, valueDim);
  const int64_t keyNumbers = tiles.zeros(keyTile.width).size();
  Values sums = tiles.zeros(keyTile.width + valueTile.width);
  sums = at.eachSharing(k, heads / keyHeads, sums, [&](Values sums) {
    PairDropout dropout(k, tiles, at, rate);
    return k.loop(k.i32Of(0), at.queries, passing, sums, [&](Value i, Values sums) {
      Value left = k.min(k.sub(at.queries, i), k.i32Of(passing)), largest = at.largestLimit(k, i, left, passing);
      // All threads find the same: whether a query of the block sees a key of ours.
      Value any = k.less(start, largest);
      if (at.reach)
        any = k.both(any, k.less(at.first(k, i), k.add(start, count)));
      return k.choose(
          any,
          [&] {
            k.barrier();
            tiles.copyIn(queryTile, at.rows(k, q, keyDim, i), left, q, keyDim, k.scalar(scale * std::numbers::log2e));
            tiles.copyIn(dOutputTile, at.rows(k, dOutput, valueDim, i), left, dOutput, valueDim);
            const int64_t lanes = k.threads / passing;
            Value mine = k.div(k.thread(), lanes), query = k.add(i, k.min(mine, k.sub(left, k.i32Of(1)))),
                  delta = deltaOf(at, query, lanes);
            k.when(k.equal(k.rem(k.thread(), lanes), k.i32Of(0)), [&] {
              k.store(k.mulf(k.load(at.rows(k, lse, 1, k.i32Of(0))(query)), k.scalar(std::numbers::log2e)),
                      k.offset(logSums, mine));
              k.store(delta, k.offset(deltas, mine));
              k.store({k.select(k.less(mine, left), at.limit(k, query), k.i32Of(0))}, k.offset(limits, mine, k.i32));
              if (at.reach)
                k.store({at.first(k, query)}, k.offset(firsts, mine, k.i32));
            });
            k.barrier();
            return k.choose(
                k.less(firstOfWarp, largest),
                [&] {
                  Values s = tiles.productTransposed(tiles.zeros(passing), tiles.rowsOf(keyTile), queryTile);
                  Values d = tiles.productTransposed(tiles.zeros(passing), tiles.rowsOf(valueTile), dOutputTile);
                  Value kept = dropout.ofKeys(rows, i, left, passing), factor = dropout.scale();
                  Values p = s;
                  for (size_t n = 0; n < s.size(); n += 4) {
                    auto ofColumns = [&](Value list, Type type) {
                      return k.load(k.offset(k.offset(list, tiles.column(0), type), tiles.columnOf(n), type), 2, type);
                    };
                    Values logSum = ofColumns(logSums, k.element), delta = ofColumns(deltas, k.element),
                           limit = ofColumns(limits, k.i32), first;
                    if (at.reach)
                      first = ofColumns(firsts, k.i32);
                    for (size_t j = n; j < n + 4; ++j) {
                      Value number = k.add(start, tiles.row(tiles.rowOf(j))), seen = k.less(number, limit[j % 2]);
                      if (at.reach)
                        seen = k.both(seen, k.less(first[j % 2], k.add(number, 1)));
                      Value probability = k.select(seen, k.exp2(k.subf(s[j], logSum[j % 2])), k.scalar(0));
                      p[j] = dropout.dropped(probability, kept, j);
                      s[j] = k.mulf(probability, k.subf(k.mulf(dropout.dropped(d[j], kept, j), factor), delta[j % 2]));
                    }
                  }
                  Values dKeys(sums.begin(), sums.begin() + keyNumbers), dValues(sums.begin() + keyNumbers, sums.end());
                  if (wantsV)
                    dValues = tiles.product(dValues, tiles.rowsOf(p, room), dOutputTile, left);
                  if (wantsK)
                    dKeys = tiles.product(dKeys, tiles.rowsOf(s, room), queryTile, left);
                  dKeys.append(dValues);
                  return dKeys;
                },
                [&] { return sums; });
          },
          [&] { return sums; });
    });
  });
  // The queries came with scale and log2(e).
  Value keyFactor = k.scalar(std::numbers::ln2), valueFactor = PairDropout(k, tiles, at, rate).scale();
  if (wantsK)
    tiles.copyOut(at.listedRows(k, dk, keyDim, start), Values(sums.begin(), sums.begin() + keyNumbers), count, dk,
                  keyDim, {keyFactor, keyFactor});
  if (wantsV)
    tiles.copyOut(at.listedRows(k, dv, valueDim, start), Values(sums.begin() + keyNumbers, sums.end()), count, dv,
                  valueDim, {valueFactor, valueFactor});
}

} // namespace

static std::optional<Backend::KernelInfo> emitAttentionGrad(KernelBuilder &k, AttentionGradOp op) {
  if (op.getBias()) // biased scores are not fused for GPUs (gpuTraits)
    return std::nullopt;
  return AttentionGradKernel(k, op).emit();
}

void attachAttentionGradKernels(MLIRContext &context) { attachKernels<emitAttentionGrad>(context); }

} // namespace xfc::gpu
