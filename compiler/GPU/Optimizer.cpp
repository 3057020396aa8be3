// The optimizer over blocks of parameters: the gradients' norm, and a step in place.
#include "Codegen/Optimizers.h"
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace xfc::gpu {

constexpr int64_t part = SquareSumOp::elementsOfPart; // also the elements of a chunk

static Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

// Loads a float and converts it to another float type.
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

static Backend::KernelInfo emitOptimize(KernelBuilder &k, OptimizeOp op) {
  auto hyper = [&](StringRef name) {
    Type type = elementOf(op.getHyper());
    return loadAs(k, k.offset(k.buffer(op.getHyperMutable()), op.getHyperIndex(name), type), type, k.element);
  };
  const OptimizerStep step = optimizerStep(k, op, hyper, [](Value x) { return x; });
  Value factor = loadAs(k, k.buffer(op.getFactorMutable()), elementOf(op.getFactor()), k.element);
  // The tensors of a group (parameters, gradients, each state) are consecutive in memory.
  Values blocks = {k.buffer(op.getParametersMutable()), k.buffer(op.getGradientsMutable())};
  for (unsigned i = 0; i < op.getNumStates(); ++i)
    blocks.push_back(k.buffer(op->getOpOperand(op.getState(i).getBeginOperandIndex())));
  Value from = k.mul(k.chunk, part), to = k.min(k.add(from, part), k.immediate(0));
  k.overSpan(blocks, from, to, {}, [&](Value i, int64_t width, const Values &) -> Values {
    SmallVector<Values> loaded;
    for (Value block : blocks)
      loaded.push_back(k.load(k.offset(block, i), width));
    for (int64_t j = 0; j < width; ++j) {
      Values states;
      for (const Values &state : ArrayRef(loaded).drop_front(2))
        states.push_back(state[j]);
      loaded[0][j] = step(loaded[0][j], k.mulf(factor, loaded[1][j]), states);
      for (size_t s = 0; s < states.size(); ++s)
        loaded[2 + s][j] = states[s];
    }
    for (size_t s = 2; s < blocks.size(); ++s)
      k.store(loaded[s], k.offset(blocks[s], i));
    k.store(loaded[0], k.offset(blocks[0], i));
    return {};
  });
  return {{Partition::Unit::Elements, part, 1}};
}

void attachOptimizerKernels(MLIRContext &context) {
  attachKernels<emitSquareSum, emitClipFactor, emitOptimize>(context);
}

} // namespace xfc::gpu
