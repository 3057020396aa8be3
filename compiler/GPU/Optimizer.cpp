// The optimizer over blocks of parameters: the gradients' norm, and Adam in place.
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace xfc::gpu {

constexpr int64_t part = SquareSumOp::elementsOfPart; // of a chunk, too

static Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

// A scalar of a tensor as another type of float.
static Value loadAs(KernelBuilder &k, Value address, Type from, Type to) {
  Value x = LLVM::LoadOp::create(k.b, from, address);
  if (from == to)
    return x;
  return to.isF64() ? arith::ExtFOp::create(k.b, to, x).getResult() : arith::TruncFOp::create(k.b, to, x).getResult();
}
static void storeF64(KernelBuilder &k, Value x, Value address, Type type) {
  LLVM::StoreOp::create(k.b, type.isF64() ? x : arith::TruncFOp::create(k.b, type, x).getResult(), address);
}

static Backend::KernelInfo emitSquareSum(KernelBuilder &k, SquareSumOp op) {
  Type f64 = k.b.getF64Type();
  Value from = k.mul(k.chunk, part), to = k.min(k.add(from, part), k.immediate(0)),
        data = k.buffer(op.getTensorsMutable());
  Values sums = k.overSpan({data}, from, to, {k.constant(0, f64)}, [&](Value i, int64_t n, Values s) {
    for (Value x : k.load(k.offset(data, i), n)) {
      Value wide = k.f64Of(x);
      s[0] = k.fma(wide, wide, s[0]);
    }
    return s;
  });
  Value total = k.blockSum(sums[0]);
  k.when(k.equal(k.thread(), k.i32Of(0)),
         [&] { LLVM::StoreOp::create(k.b, total, k.offset(k.buffer(op.getResult()), k.chunk, f64)); });
  return {{Partition::Unit::Elements, part, 1}};
}

static Backend::KernelInfo emitClipFactor(KernelBuilder &k, ClipFactorOp op) {
  Type f64 = k.b.getF64Type();
  k.threads = 1024;
  Value sum = k.constant(0, f64), zero = sum;
  for (auto [i, tensor] : llvm::enumerate(op.getSums())) {
    Value data = k.buffer(op.getSumsMutable()[i]);
    const int64_t count = cast<RankedTensorType>(tensor.getType()).getNumElements();
    Type type = elementOf(tensor);
    sum = k.loop(k.i64Of(k.thread()), k.index(count), k.threads, ValueRange{sum}, [&](Value j, Values s) -> Values {
      return {k.addf(s[0], loadAs(k, k.offset(data, j, type), type, f64))};
    })[0];
  }
  Value total = k.blockSum(sum);
  k.when(k.equal(k.thread(), k.i32Of(0)), [&] {
    Value norm = k.sqrt(total), most = loadAs(k, k.buffer(op.getMaxNormMutable()), elementOf(op.getMaxNorm()), f64);
    Value clips = k.both(k.lessf(zero, most), k.lessf(most, norm));
    if (!op.getFactor().use_empty())
      storeF64(k, k.select(clips, k.divf(most, norm), k.constant(1, f64)), k.buffer(op.getFactor()),
               elementOf(op.getFactor()));
    if (!op.getNorm().use_empty())
      storeF64(k, norm, k.buffer(op.getNorm()), elementOf(op.getNorm()));
  });
  return {{Partition::Unit::One, 1, 1}};
}

static Backend::KernelInfo emitAdam(KernelBuilder &k, AdamOp op) {
  auto hyper = [&](int64_t i) {
    Type type = elementOf(op.getHyper());
    return loadAs(k, k.offset(k.buffer(op.getHyperMutable()), i, type), type, k.element);
  };
  enum { lr, beta1, beta2, eps, l2, decay, correction1, correction2 };
  Value one = k.scalar(1), rate = hyper(lr), b1 = hyper(beta1), b2 = hyper(beta2), e = hyper(eps), weight = hyper(l2);
  Value keep = k.subf(one, k.mulf(rate, hyper(decay))), step = k.divf(rate, hyper(correction1)),
        inverse2 = k.divf(one, hyper(correction2));
  Value a1 = k.subf(one, b1), a2 = k.subf(one, b2),
        factor = loadAs(k, k.buffer(op.getFactorMutable()), elementOf(op.getFactor()), k.element);
  // Tensors of a segment lie behind each other, from the first on.
  Value p = k.buffer(op.getParametersMutable()), g = k.buffer(op.getGradientsMutable()),
        m = k.buffer(op.getMoments1Mutable()), v = k.buffer(op.getMoments2Mutable());
  Value from = k.mul(k.chunk, part), to = k.min(k.add(from, part), k.immediate(0));
  k.overSpan({p, g, m, v}, from, to, {}, [&](Value i, int64_t width, Values) -> Values {
    Values ps = k.load(k.offset(p, i), width), gs = k.load(k.offset(g, i), width), ms = k.load(k.offset(m, i), width),
           vs = k.load(k.offset(v, i), width);
    for (int64_t j = 0; j < width; ++j) {
      Value gradient = k.fma(weight, ps[j], k.mulf(factor, gs[j]));
      ms[j] = k.fma(b1, ms[j], k.mulf(a1, gradient));
      vs[j] = k.fma(b2, vs[j], k.mulf(a2, k.mulf(gradient, gradient)));
      Value denominator = k.addf(k.sqrt(k.mulf(vs[j], inverse2)), e);
      ps[j] = k.subf(k.mulf(keep, ps[j]), k.divf(k.mulf(step, ms[j]), denominator));
    }
    k.store(ms, k.offset(m, i));
    k.store(vs, k.offset(v, i));
    k.store(ps, k.offset(p, i));
    return {};
  });
  return {{Partition::Unit::Elements, part, 1}};
}

void attachOptimizerKernels(MLIRContext &context) { attachKernels<emitSquareSum, emitClipFactor, emitAdam>(context); }

} // namespace xfc::gpu
