// The partial sums of the gradients of a norm's weights, added up.
#include "Emitters.h"

using namespace mlir;

namespace xfc::gpu {

// Apart from the shared kernel, since parts are few and known when it is emitted, so that a thread reads many at once.
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

void attachNormKernels(MLIRContext &context) { attachKernels<emitSumParts>(context); }

} // namespace xfc::gpu
