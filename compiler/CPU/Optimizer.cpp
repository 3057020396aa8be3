// The optimizer over blocks of parameters: the norm of the gradients, and a step in place.
#include "Codegen/Optimizers.h"
#include "Emitters.h"
#include "Matrix.h"
#include "MicroKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "plan/Sharding.h"

using namespace mlir;

namespace xfc {

constexpr int64_t part = SquareSumOp::elementsOfPart; // elements per chunk, too
static_assert(part == squarePart);                    // as the ranks cut the block

// Loads and stores scalars in the type that the op declares; they are f64 in between.
static Value loadF64(KernelBuilder &k, Value address, Type type) {
  Value x = LLVM::LoadOp::create(k.b, type, address);
  return type.isF64() ? x : arith::ExtFOp::create(k.b, k.b.getF64Type(), x).getResult();
}
static void storeF64(KernelBuilder &k, Value x, Value address, Type type) {
  LLVM::StoreOp::create(k.b, type.isF64() ? x : arith::TruncFOp::create(k.b, type, x).getResult(), address);
}
static Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

static Backend::KernelInfo emitSquareSum(KernelBuilder &k, SquareSumOp op) {
  constexpr int64_t lanes = 8; // 64 bytes of f64 sums
  KernelBuilder::SumLanes vectors(k, lanes * k.bytes());
  Value data = k.buffer(op.getTensorsMutable()), result = k.buffer(op.getResult()), from = k.mul(k.chunk, part);
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

static Backend::KernelInfo emitClipFactor(KernelBuilder &k, ClipFactorOp op) {
  Type f64 = k.b.getF64Type();
  Value total = k.constant(0, f64), zero = total;
  for (auto [i, tensor] : llvm::enumerate(op.getSums())) {
    Value data = k.buffer(op.getSumsMutable()[i]);
    const int64_t count = cast<RankedTensorType>(tensor.getType()).getNumElements();
    total = k.loop(k.index(0), k.index(count), 1, ValueRange{total}, [&](Value j, Values s) -> Values {
      return {k.addf(s[0], loadF64(k, k.offset(data, j, elementOf(tensor)), elementOf(tensor)))};
    })[0];
  }
  Value norm = k.sqrt(total), one = k.constant(1, f64);
  Value most = loadF64(k, k.buffer(op.getMaxNormMutable()), elementOf(op.getMaxNorm()));
  Value clips = k.both(k.lessf(zero, most), k.lessf(most, norm));
  if (!op.getFactor().use_empty())
    storeF64(k, k.select(clips, k.divf(most, norm), one), k.buffer(op.getFactor()), elementOf(op.getFactor()));
  if (!op.getNorm().use_empty())
    storeF64(k, norm, k.buffer(op.getNorm()), elementOf(op.getNorm()));
  return {{Partition::Unit::One, 1, 1}, 0};
}

static Backend::KernelInfo emitOptimize(KernelBuilder &k, OptimizeOp op) {
  const int64_t lanes = k.lanes();
  auto scalarAt = [&](Value address, Type type, int64_t i) {
    Value x = LLVM::LoadOp::create(k.b, type, k.offset(address, i, type));
    return type == k.element ? x : k.elementOf(x);
  };
  auto hyper = [&](StringRef name) {
    return scalarAt(k.buffer(op.getHyperMutable()), elementOf(op.getHyper()), op.getHyperIndex(name));
  };
  const OptimizerStep step = optimizerStep(k, op, hyper, [&](Value x) { return k.broadcast(x); });
  Value factor = k.broadcast(scalarAt(k.buffer(op.getFactorMutable()), elementOf(op.getFactor()), 0));
  // The tensors of a group follow each other in memory, starting with the first.
  Value p = k.buffer(op.getParametersMutable()), g = k.buffer(op.getGradientsMutable());
  Values blocks;
  for (unsigned i = 0; i < op.getNumStates(); ++i)
    blocks.push_back(k.buffer(op->getOpOperand(op.getState(i).getBeginOperandIndex())));
  Value from = k.mul(k.chunk, part), to = k.min(k.add(from, part), k.immediate(0));
  auto update = [&](Value i, const std::function<void(Value, Value)> &write) {
    Value pAt = k.offset(p, i), parameter = k.load(pAt, lanes);
    Value gradient = k.mulf(factor, k.load(k.offset(g, i), lanes));
    Values addresses, states;
    for (Value block : blocks) {
      addresses.push_back(k.offset(block, i));
      states.push_back(k.load(addresses.back(), lanes));
    }
    Value updated = step(parameter, gradient, states);
    for (auto [state, address] : llvm::zip_equal(states, addresses))
      write(state, address);
    write(updated, pAt);
  };
  auto updateRange = [&](Value begin, Value end) {
    Value whole = k.add(begin, k.mul(k.div(k.max(k.sub(end, begin), k.index(0)), lanes), lanes));
    k.loop(begin, whole, lanes, [&](Value i) { update(i, [&](Value x, Value address) { k.store(x, address); }); });
    k.when(k.less(whole, end), [&] {
      Value mask = k.lanesBelow(whole, end);
      update(whole, [&](Value x, Value address) { k.storeMasked(x, address, mask); });
    });
  };
  const Backend::KernelInfo info = {{Partition::Unit::Elements, part, 1}, 0};
  if (!op.getPacks()) {
    updateRange(from, to);
    return info;
  }

  // A chunk owns the panels of rows that begin in its part, and the elements of its part that belong to no packed
  // weight.
  const int64_t panel = Tiling(k, 1, Products::Elements).panel, firstCopy = op->getNumOperands() + op->getNumResults();
  // Elements per row that are updated and then packed, together with the other rows of the panel: their new values stay
  // in the L2 cache (64 KB of f32).
  const int64_t columnsOfBlock = part / panel;
  Value immediates = k.field(k.call, offsetof(xfc_call, immediates), k.ptr),
        buffers = k.field(k.call, offsetof(xfc_call, buffers), k.ptr);
  Value rest = k.loop(k.index(0), k.immediate(1), 1, ValueRange{from}, [&](Value w, Values state) -> Values {
    auto number = [&](int64_t i) { return k.loadI64(immediates, k.add(k.mul(w, 3), 2 + i)); };
    Value weight = number(0), rows = number(1), columns = number(2), weightEnd = k.add(weight, k.mul(rows, columns));
    updateRange(state[0], k.min(weight, to));
    Value tall = k.mul(columns, panel);
    auto panelsBefore = [&](Value element) {
      Value inside = k.max(k.sub(element, weight), k.index(0));
      Value count = arith::DivUIOp::create(k.b, k.add(inside, k.sub(tall, k.index(1))), tall);
      return k.min(count, k.div(k.add(rows, panel - 1), panel));
    };
    auto updatePanel = [&](Value tile) {
      Value first = k.mul(tile, panel), last = k.min(k.add(first, panel), rows);
      k.loop(k.index(0), columns, columnsOfBlock, [&](Value column) {
        Value end = k.min(k.add(column, columnsOfBlock), columns);
        k.loop(first, last, 1, [&](Value row) {
          Value begin = k.add(weight, k.mul(row, columns));
          updateRange(k.add(begin, column), k.add(begin, end));
        });
        for (bool transposed : {false, true}) {
          Value copy =
              LLVM::LoadOp::create(k.b, k.ptr, k.offset(buffers, k.add(k.mul(w, 2), firstCopy + transposed), k.ptr));
          Value wanted = LLVM::ICmpOp::create(k.b, LLVM::ICmpPredicate::ne, copy, LLVM::ZeroOp::create(k.b, k.ptr));
          k.when(wanted,
                 [&] { emitPackRows(k, {transposed}, k.offset(p, weight), rows, columns, first, column, end, copy); });
        }
      });
    };
    k.when(k.both(k.less(weight, to), k.less(from, weightEnd)),
           [&] { k.loop(panelsBefore(from), panelsBefore(to), 1, updatePanel); });
    return {k.max(state[0], weightEnd)};
  })[0];
  updateRange(rest, to);
  return info;
}

void attachOptimizerKernels(MLIRContext &context) {
  attachKernels<emitSquareSum, emitClipFactor, emitOptimize>(context);
}

} // namespace xfc
