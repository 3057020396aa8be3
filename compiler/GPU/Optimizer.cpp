// The norm of the gradients.
#include "Emitters.h"

using namespace mlir;

namespace xfc::gpu {

constexpr int64_t part = SquareSumOp::elementsOfPart; // also the elements of a chunk

static KernelInfo emitSquareSum(KernelBuilder &k, SquareSumOp op) {
  Type f64 = k.b.getF64Type();
  Value from = k.mul(k.chunk, part), count = k.elementCount(), to = k.min(k.add(from, part), count);
  View data = k.buffer(op.getTensorsMutable());
  Values sums = k.overSpan({data}, from, to, {k.constant(0, f64)}, [&](Value i, int64_t n, Values s) {
    for (Value x : k.load(data + i, n)) {
      Value wide = k.f64Of(x);
      s[0] = k.fma(wide, wide, s[0]);
    }
    return s;
  });
  Value total = k.blockSum(sums[0]);
  k.when(k.equal(k.thread(), 0), [&] { k.store(total, k.buffer(op.getResult()) + k.chunk); });
  return {{Partition::Unit::Elements, part, 1}};
}

static KernelInfo emitClipFactor(KernelBuilder &k, ClipFactorOp op) {
  Type f64 = k.b.getF64Type();
  k.threads = 1024;
  Value sum = k.constant(0, f64), zero = sum;
  for (auto [i, tensor] : llvm::enumerate(op.getSums())) {
    View data = k.buffer(op.getSumsMutable()[i]);
    const int64_t count = cast<RankedTensorType>(tensor.getType()).getNumElements();
    sum = k.loop(k.i64Of(k.thread()), count, k.threads, ValueRange{sum},
                 [&](Value j, Values s) -> Values { return {k.addf(s[0], k.load(data + j))}; })[0];
  }
  Value total = k.blockSum(sum);
  k.when(k.equal(k.thread(), 0), [&] {
    Value norm = k.sqrt(total), most = k.f64Of(k.load(k.buffer(op.getMaxNormMutable())));
    Value isAbove = k.lessf(most, norm), clips = k.both(k.lessf(zero, most), isAbove);
    if (!op.getFactor().use_empty()) {
      const View factor = k.buffer(op.getFactor());
      k.store(k.select(clips, k.divf(most, norm), 1), factor);
    }
    if (!op.getNorm().use_empty())
      k.store(norm, k.buffer(op.getNorm()));
  });
  return {{Partition::Unit::One, 1, 1}};
}

void attachOptimizerKernels(MLIRContext &context) { attachKernels<emitSquareSum, emitClipFactor>(context); }

} // namespace xfc::gpu
