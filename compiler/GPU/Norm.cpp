// The gradients of a norm's weights: their partial sums, added up, and without partial sums.
#include "Emitters.h"

using namespace mlir;

namespace xfc::gpu {
// A block owns 8 columns (32 bytes of each part) of all sums. A thread adds up every 32nd part of its column, and one
// thread per column of a sum adds up what those threads have, both in ascending order.
static KernelInfo emitSumParts(KernelBuilder &k, SumPartsOp op) {
  constexpr int64_t columns = 8, together = 16; // loads in flight
  auto type = cast<RankedTensorType>(op.getParts().front().getType());
  const int64_t parts = type.getDimSize(0), width = type.getDimSize(1), chunks = (width + columns - 1) / columns;
  SmallVector<OpResult> wanted;
  for (OpResult result : op.getSums())
    if (!result.use_empty())
      wanted.push_back(result);
  const int64_t sums = wanted.size(), step = k.threads / columns;
  View shared = k.at(k.shared(sums * step * columns * k.bytes()));
  Value number = k.rem(k.thread(), columns), own = k.div(k.thread(), columns), ofThread = k.i64Of(number),
        column = k.add(k.mul(k.chunk, columns), ofThread), within = k.less(column, width);
  // The place in shared memory of a thread's share of a sum.
  auto place = [&](Value sum, Value share) {
    return shared + k.add(k.mul(k.add(k.mul(sum, step), share), columns), number);
  };
  for (int64_t s = 0; s < sums; ++s) {
    const View partials = k.buffer(op->getOpOperand(wanted[s].getResultNumber())) + column;
    Value total = k.scalar(0);
    for (int64_t first = 0; first < parts; first += step * together) {
      Values loaded;
      for (int64_t i = first; i < std::min(parts, first + step * together); i += step) {
        Value part = k.add(own, i), isPart = k.both(within, k.less(part, parts));
        loaded.push_back(k.loadIf(isPart, partials + k.mul(k.i64Of(part), width), 1)[0]);
      }
      for (Value x : loaded)
        total = k.addf(total, x);
    }
    const View to = place(k.i32Of(static_cast<int32_t>(s)), own);
    k.store(total, to);
  }
  k.barrier();
  k.when(k.both(within, k.less(k.thread(), sums * columns)), [&] {
    Value none = k.scalar(0);
    Values total = k.loop(k.i32Of(0), step, 1, {none},
                          [&](Value share, Values s) -> Values { return {k.addf(s[0], k.load(place(own, share)))}; });
    for (int64_t s = 0; s < sums; ++s)
      k.when(k.equal(own, s), [&] { k.store(total[0], k.buffer(wanted[s]) + column); });
  });
  return {{Partition::Unit::One, 1, chunks}};
}

// A block owns 8 columns (32 bytes of each row). A thread takes rows at a fixed stride, the number of rows that the
// block takes at once, and sums them in order. Lanes are then added in a fixed tree, and warps in order.
static KernelInfo emitNormWeightGrad(KernelBuilder &k, NormWeightGradOp op) {
  constexpr int64_t columns = 8;
  const int64_t width = op.getX().getType().getFeatures(), chunks = (width + columns - 1) / columns;
  const bool wantsWeight = !op.getDweight().use_empty(), wantsBias = op.getDbias() && !op.getDbias().use_empty();
  k.threads = 1024;
  const View dy = k.rowsOf(op.getDyMutable()), x = k.rowsOf(op.getXMutable()), stats = k.rowsOf(op.getStatsMutable());
  View parts = k.at(k.shared(k.warps() * columns * 2 * k.bytes()));
  k.vectorized({op.getDyMutable(), op.getXMutable()}, width, [&](int64_t n) {
    const int64_t across = columns / n, together = k.threads / across;
    Value f = k.mul(k.bitAnd(k.thread(), across - 1), n), ofThread = k.i64Of(f),
          column = k.add(k.mul(k.chunk, columns), ofThread);
    Value within = k.less(column, width);
    Values sums = k.choose(
        within,
        [&] {
          const Values none(2 * n, k.scalar(0));
          Value rows = k.rowCount();
          return k.loop(k.i64Of(k.div(k.thread(), across)), rows, together, none,

                        [&](Value i, Values s) {
                          View statsRow = stats.row(i);
                          Value mean = k.load(statsRow), r = k.load(statsRow + 1);
                          Values d = k.load(dy.row(i) + column, n), v = k.load(x.row(i) + column, n);
                          for (int64_t j = 0; j < n; ++j) {
                            s[j] = k.fma(d[j], k.mulf(k.subf(v[j], mean), r), s[j]);
                            s[n + j] = k.addf(s[n + j], d[j]);
                          }
                          return s;
                        });
        },
        [&] { return Values(2 * n, k.scalar(0)); });
    // Lanes that have the same columns are `across` apart.
    for (Value &sum : sums)
      for (int64_t mask = KernelBuilder::warpSize / 2; mask >= across; mask /= 2)
        sum = k.addf(sum, k.shuffleXor(sum, mask));
    k.when(k.less(k.lane(), across), [&] {
      for (int64_t j = 0; j < 2 * n; ++j)
        k.store(sums[j], parts + k.add(k.add(k.mul(k.warp(), 2 * columns), f), j < n ? j : columns + j - n));
    });
  });
  k.barrier();
  // One thread per column of dw, then of db.
  Value number = k.rem(k.thread(), columns), ofThread = k.i64Of(number),
        column = k.add(k.mul(k.chunk, columns), ofThread), isColumn = k.less(column, width);
  k.when(k.both(k.less(k.thread(), 2 * columns), isColumn), [&] {
    Value zero = k.scalar(0), total = k.loop(k.i32Of(0), k.warps(), 1, {zero}, [&](Value warp, Values s) -> Values {
      Value own = k.thread();
      return {k.addf(s[0], k.load(parts + k.add(k.mul(warp, 2 * columns), own)))};
    })[0];
    Value ofWeight = k.less(k.thread(), columns);
    if (wantsWeight)
      k.when(ofWeight, [&] { k.store(total, k.buffer(op.getDweight()) + column); });
    if (wantsBias)
      k.when(k.less(columns - 1, k.thread()), [&] { k.store(total, k.buffer(op.getDbias()) + column); });
  });
  return {{Partition::Unit::One, 1, chunks}};
}

void attachNormKernels(MLIRContext &context) { attachKernels<emitNormWeightGrad, emitSumParts>(context); }

} // namespace xfc::gpu
