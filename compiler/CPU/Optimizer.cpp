// The optimizer over blocks of parameters: the gradients' norm, and Adam in place.
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace xfc {

constexpr int64_t part = 16384; // elements of a chunk, and of a partial sum

// Loads and stores of scalars whose type the op says, computed with in f64.
static Value loadF64(KernelBuilder &k, Value address, Type type) {
  Value x = LLVM::LoadOp::create(k.b, type, address);
  return type.isF64() ? x : arith::ExtFOp::create(k.b, k.b.getF64Type(), x).getResult();
}
static void storeF64(KernelBuilder &k, Value x, Value address, Type type) {
  LLVM::StoreOp::create(k.b, type.isF64() ? x : arith::TruncFOp::create(k.b, type, x).getResult(), address);
}
static Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

Backend::KernelInfo emitSquareSum(KernelBuilder &k, SquareSumOp op) {
  const int64_t lanes = k.lanes();
  Value data = k.buffer(0), result = k.buffer(op->getNumOperands()), from = k.mul(k.chunk, part);
  Value to = k.min(k.add(from, part), k.immediate(0));
  auto wide = VectorType::get({lanes}, k.b.getF64Type());
  Value zero = k.constant(0, wide);
  Values sums = k.loop(from, to, 4 * lanes, Values(4, zero), [&](Value i, Values s) {
    for (int64_t c = 0; c < 4; ++c) {
      Value start = k.add(i, c * lanes);
      Value x = k.select(k.lanesBelow(start, to), k.load(k.offset(data, k.min(start, to)), lanes), k.splat(0));
      Value d = k.f64Of(x);
      s[c] = k.fma(d, d, s[c]);
    }
    return s;
  });
  Value total = k.sum(k.addf(k.addf(sums[0], sums[1]), k.addf(sums[2], sums[3])));
  LLVM::StoreOp::create(k.b, total, k.offset(result, k.chunk, k.b.getF64Type()));
  return {{Partition::Unit::Elements, part, 1}, 0};
}

Backend::KernelInfo emitClipFactor(KernelBuilder &k, ClipFactorOp op) {
  Type f64 = k.b.getF64Type();
  Value total = k.constant(0, f64), zero = total;
  for (auto [i, tensor] : llvm::enumerate(op.getSums())) {
    Value data = k.buffer(1 + i);
    const int64_t count = cast<RankedTensorType>(tensor.getType()).getNumElements();
    total = k.loop(k.index(0), k.index(count), 1, ValueRange{total}, [&](Value j, Values s) -> Values {
      return {k.addf(s[0], loadF64(k, k.offset(data, j, elementOf(tensor)), elementOf(tensor)))};
    })[0];
  }
  Value norm = k.sqrt(total), one = k.constant(1, f64);
  Value most = loadF64(k, k.buffer(0), elementOf(op.getMaxNorm()));
  Value clips = k.both(k.lessf(zero, most), k.lessf(most, norm));
  const int64_t results = op->getNumOperands();
  if (!op.getFactor().use_empty())
    storeF64(k, k.select(clips, k.divf(most, norm), one), k.buffer(results), elementOf(op.getFactor()));
  if (!op.getNorm().use_empty())
    storeF64(k, norm, k.buffer(results + 1), elementOf(op.getNorm()));
  return {{Partition::Unit::One, 1, 1}, 0};
}

Backend::KernelInfo emitAdam(KernelBuilder &k, AdamOp op) {
  const int64_t lanes = k.lanes(), n = op.getParameters().size();
  auto scalarAt = [&](Value address, Type type, int64_t i) {
    Value x = LLVM::LoadOp::create(k.b, type, k.offset(address, i, type));
    return type == k.element ? x : k.elementOf(x);
  };
  Value hyper = k.buffer(0);
  enum { lr, beta1, beta2, eps, l2, decay, correction1, correction2, hypers };
  SmallVector<Value> h;
  for (int64_t i = 0; i < hypers; ++i)
    h.push_back(scalarAt(hyper, elementOf(op.getHyper()), i));
  Value one = k.scalar(1);
  Value keep = k.broadcast(k.subf(one, k.mulf(h[lr], h[decay]))), step = k.broadcast(k.divf(h[lr], h[correction1]));
  Value inverse2 = k.broadcast(k.divf(one, h[correction2])), b1 = k.broadcast(h[beta1]), b2 = k.broadcast(h[beta2]);
  Value a1 = k.broadcast(k.subf(one, h[beta1])), a2 = k.broadcast(k.subf(one, h[beta2])), e = k.broadcast(h[eps]);
  Value weight = k.broadcast(h[l2]), factor = k.broadcast(scalarAt(k.buffer(1), elementOf(op.getFactor()), 0));
  // Tensors of a segment lie behind each other, from the first on.
  Value p = k.buffer(2), g = k.buffer(2 + n), m = k.buffer(2 + 2 * n), v = k.buffer(2 + 3 * n);
  Value from = k.mul(k.chunk, part), to = k.min(k.add(from, part), k.immediate(0));
  auto update = [&](Value i, const std::function<void(Value, Value)> &write) {
    Value pAt = k.offset(p, i), mAt = k.offset(m, i), vAt = k.offset(v, i), parameter = k.load(pAt, lanes);
    Value gradient = k.fma(weight, parameter, k.mulf(factor, k.load(k.offset(g, i), lanes)));
    Value moment1 = k.fma(b1, k.load(mAt, lanes), k.mulf(a1, gradient));
    Value moment2 = k.fma(b2, k.load(vAt, lanes), k.mulf(a2, k.mulf(gradient, gradient)));
    Value denominator = k.addf(k.sqrt(k.mulf(moment2, inverse2)), e);
    write(moment1, mAt);
    write(moment2, vAt);
    write(k.subf(k.mulf(keep, parameter), k.divf(k.mulf(step, moment1), denominator)), pAt);
  };
  Value whole = k.add(from, k.mul(k.div(k.sub(to, from), lanes), lanes));
  k.loop(from, whole, lanes, [&](Value i) { update(i, [&](Value x, Value address) { k.store(x, address); }); });
  k.when(k.less(whole, to), [&] {
    Value mask = k.lanesBelow(whole, to);
    update(whole, [&](Value x, Value address) { k.storeMasked(x, address, mask); });
  });
  return {{Partition::Unit::Elements, part, 1}, 0};
}

} // namespace xfc
