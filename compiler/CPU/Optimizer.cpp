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

// The ops of a rule that factors the second moment. Each takes vectors of 8 elements, so that sums are the same on
// every instruction set.
namespace {

constexpr int64_t lanes = 8;

template <typename Op> class FactoredKernel {
public:
  FactoredKernel(KernelBuilder &k, Op op, int64_t tensors)
      : k(k), op(op), vectors(k, lanes * k.bytes()),
        chunk(k, tensors, op.getHyperMutable(), op.getHyper().getType().getNumElements()),
        rule(
            k, chunk, [op](StringRef name) mutable { return op.getHyperIndex(name); },
            [&k](Value x) { return k.broadcast(x); }),
        wide(VectorType::get({lanes}, k.b.getF64Type())), zero(k.constant(0, wide)) {}

  // The tensor's buffer in a group of operands or results of one buffer for each tensor, or for each matrix.
  Value of(OperandRange group) const { return k.bufferAt(group.getBeginOperandIndex(), chunk.tensor); }
  Value ofMatrix(OperandRange group) const { return k.bufferAt(group.getBeginOperandIndex(), chunk.matrix); }
  Value of(ResultRange group) const { return k.bufferAt(first(group), chunk.tensor); }
  Value ofMatrix(ResultRange group) const { return k.bufferAt(first(group), chunk.matrix); }

  // Runs `body` unless the tensor is frozen.
  Backend::KernelInfo run(const std::function<void()> &body) {
    k.when(chunk.updated, body);
    return {{Partition::Unit::Elements, 1, 1}, 0};
  }
  // Runs one of the two, for a tensor that is a matrix, or that is not; only those that some tensor of the op needs.
  Values choose(int64_t tensors, int64_t matrices, const std::function<Values()> &matrix,
                const std::function<Values()> &column) {
    if (matrices == 0 || matrices == tensors)
      return matrices == 0 ? column() : matrix();
    return k.choose(chunk.isMatrix, matrix, column);
  }

  // Runs body(i, mask, state) for each vector from .. to - 1; the mask is null for whole vectors.
  using Body = std::function<Values(Value, Value, Values)>;
  Values eachVector(Value from, Value to, ValueRange state, const Body &body) {
    Value whole = k.add(from, k.mul(k.div(k.sub(to, from), lanes), lanes));
    Values before =
        k.loop(from, whole, lanes, state, [&](Value i, Values s) { return body(i, Value(), std::move(s)); });
    return k.loop(whole, to, lanes, before,
                  [&](Value i, Values s) { return body(i, k.lanesBelow(i, to), std::move(s)); });
  }
  Value load(Value p, Value mask) { return mask ? k.loadMasked(p, mask) : k.load(p, lanes); }
  void store(Value x, Value p, Value mask) { mask ? k.storeMasked(x, p, mask) : k.store(x, p); }
  Value loadWide(Value p, Value i, Value mask) {
    Value at = k.offset(p, i, k.b.getF64Type());
    return mask ? LLVM::MaskedLoadOp::create(k.b, wide, at, mask, zero, 8).getResult()
                : LLVM::LoadOp::create(k.b, wide, at, 8).getResult();
  }
  void storeWide(Value x, Value p, Value i, Value mask) {
    Value at = k.offset(p, i, k.b.getF64Type());
    mask ? (void)LLVM::MaskedStoreOp::create(k.b, x, at, mask, 8) : (void)LLVM::StoreOp::create(k.b, x, at, 8);
  }
  Value squared(Value x, Value sum) {
    Value d = k.f64Of(x);
    return k.fma(d, d, sum);
  }
  void storeSum(Value sum, Value p) {
    LLVM::StoreOp::create(k.b, k.sum(sum), k.offset(p, chunk.number, k.b.getF64Type()));
  }
  Value factor() { return k.load(k.buffer(op.getFactorMutable())); }

  // Runs body(i, update, mask, state) for the unscaled updates of the chunk's part, i being an element of the tensor.
  using UpdateBody = std::function<Values(Value, Value, Value, Values)>;
  Values eachUpdate(int64_t matrices, ValueRange state, const UpdateBody &body) {
    Value g = of(op.getGradients()), rows = of(op.getRows()), from = chunk.begin(k), to = chunk.end(k);
    const FactoredRule::Formula clipped = rule.clipped(factor());
    return choose(
        op.getGradients().size(), matrices,
        [&] {
          Value factors = ofMatrix(op.getFactors());
          return k.loop(from, to, 1, state, [&](Value row, const Values &outer) {
            Value first = k.mul(row, chunk.columns);
            Value inverse = k.broadcast(k.divf(k.scalar(1), k.sqrt(k.load(k.offset(rows, row)))));
            return eachVector(k.index(0), chunk.columns, outer, [&](Value column, Value mask, Values s) {
              Value i = k.add(first, column), x = clipped(load(k.offset(g, i), mask));
              Value update = k.mulf(k.mulf(x, load(k.offset(factors, column), mask)), inverse);
              return body(i, update, mask, std::move(s));
            });
          });
        },
        [&] {
          return eachVector(from, to, state, [&](Value i, Value mask, Values s) {
            Value mean = load(k.offset(rows, i), mask);
            if (mask) // no division by 0 in lanes that are not used
              mean = k.select(mask, mean, k.splat(1));
            return body(i, k.divf(clipped(load(k.offset(g, i), mask)), k.sqrt(mean)), mask, std::move(s));
          });
        });
  }

  KernelBuilder &k;
  Op op;

private:
  int64_t first(ResultRange group) const {
    return static_cast<int64_t>(op->getNumOperands()) + cast<OpResult>(group.front()).getResultNumber();
  }
  KernelBuilder::SumLanes vectors;

public:
  const ChunkOfTensor chunk;
  const FactoredRule rule;
  const VectorType wide;
  const Value zero;
};

} // namespace

static Backend::KernelInfo emitRowMoments(KernelBuilder &k, RowMomentsOp op) {
  const auto n = static_cast<int64_t>(op.getParameters().size()),
             m = static_cast<int64_t>(op.getResultSegment(2).size());
  FactoredKernel kernel(k, op, n);
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    Value p = kernel.of(op.getParameters()), g = kernel.of(op.getGradients()), rows = kernel.of(op.getRows()),
          from = chunk.begin(k), to = chunk.end(k);
    const FactoredRule::Formula clipped = kernel.rule.clipped(kernel.factor());
    auto matrix = [&]() -> Values {
      Value columns =
          k.offset(kernel.ofMatrix(op.getResultSegment(2)), k.mul(chunk.number, chunk.columns), k.b.getF64Type());
      Value width = k.f64OfInteger(chunk.columns);
      const auto newMean = kernel.rule.newMean(/*vectors=*/false);
      kernel.eachVector(k.index(0), chunk.columns, {}, [&](Value column, Value mask, const Values &) -> Values {
        kernel.storeWide(kernel.zero, columns, column, mask);
        return {};
      });
      return k.loop(from, to, 1, ValueRange{kernel.zero}, [&](Value row, Values squares) -> Values {
        Value first = k.mul(row, chunk.columns);
        Values sums = kernel.eachVector(
            k.index(0), chunk.columns, {kernel.zero, squares[0]}, [&](Value column, Value mask, Values s) -> Values {
              Value i = k.add(first, column), x = k.f64Of(clipped(kernel.load(k.offset(g, i), mask)));
              kernel.storeWide(k.fma(x, x, kernel.loadWide(columns, column, mask)), columns, column, mask);
              return {k.fma(x, x, s[0]), kernel.squared(kernel.load(k.offset(p, i), mask), s[1])};
            });
        Value at = k.offset(rows, row);
        k.store(k.elementOf(newMean(k.f64Of(k.load(at)), k.divf(k.sum(sums[0]), width))), at);
        return {sums[1]};
      });
    };
    auto column = [&] {
      const auto newMean = kernel.rule.newMean(/*vectors=*/true);
      return kernel.eachVector(from, to, {kernel.zero}, [&](Value i, Value mask, Values s) -> Values {
        Value x = k.f64Of(clipped(kernel.load(k.offset(g, i), mask))), at = k.offset(rows, i);
        kernel.store(k.elementOf(newMean(k.f64Of(kernel.load(at, mask)), k.mulf(x, x))), at, mask);
        return {kernel.squared(kernel.load(k.offset(p, i), mask), s[0])};
      });
    };
    kernel.storeSum(kernel.choose(n, m, matrix, column)[0], kernel.of(op.getResultSegment(1)));
  });
}

static Backend::KernelInfo emitColumnMoments(KernelBuilder &k, ColumnMomentsOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getRows().size()));
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    Value rows = kernel.of(op.getRows()), sums = kernel.of(op.getColumnSums()), columns = kernel.of(op.getColumns()),
          factors = kernel.of(op.getResultSegment(1));
    Value total =
        k.sum(kernel.eachVector(k.index(0), chunk.rows, {kernel.zero}, [&](Value i, Value mask, Values s) -> Values {
          return {k.addf(s[0], k.f64Of(kernel.load(k.offset(rows, i), mask)))};
        })[0]);
    Value height = k.f64OfInteger(chunk.rows), mean = k.broadcast(k.divf(total, height)), wide = k.broadcast(height);
    const auto newMean = kernel.rule.newMean(/*vectors=*/true);
    Value from = k.mul(chunk.number, ColumnMomentsOp::columnsOfChunk),
          to = k.min(k.add(from, ColumnMomentsOp::columnsOfChunk), chunk.columns);
    kernel.eachVector(from, to, {}, [&](Value column, Value mask, const Values &) -> Values {
      Value sum = k.loop(k.index(0), chunk.parts, 1, ValueRange{kernel.zero}, [&](Value part, Values s) -> Values {
        return {k.addf(s[0], kernel.loadWide(sums, k.add(k.mul(part, chunk.columns), column), mask))};
      })[0];
      Value at = k.offset(columns, column), updated = newMean(k.f64Of(kernel.load(at, mask)), k.divf(sum, wide));
      kernel.store(k.elementOf(updated), at, mask);
      kernel.store(k.elementOf(k.sqrt(k.divf(mean, updated))), k.offset(factors, column), mask);
      return {};
    });
  });
}

static Backend::KernelInfo emitUpdateSquares(KernelBuilder &k, UpdateSquaresOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getGradients().size()));
  return kernel.run([&] {
    Value sum = kernel.eachUpdate(
        static_cast<int64_t>(op.getFactors().size()), {kernel.zero},
        [&](Value, Value update, Value, Values s) -> Values { return {kernel.squared(update, s[0])}; })[0];
    kernel.storeSum(sum, kernel.of(op.getSquares()));
  });
}

static Backend::KernelInfo emitFactoredUpdate(KernelBuilder &k, FactoredUpdateOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getParameters().size()));
  const ChunkOfTensor &chunk = kernel.chunk;
  const bool averages = !op.getAverages().empty();
  return kernel.run([&] {
    auto [decayed, stepped] = kernel.rule.scales(sumOfParts(k, kernel.of(op.getParameterSquares()), chunk.parts),
                                                 sumOfParts(k, kernel.of(op.getUpdateSquares()), chunk.parts));
    Value decay = k.broadcast(decayed), step = k.broadcast(stepped), p = kernel.of(op.getParameters()),
          average = averages ? kernel.of(op.getAverages()) : Value(),
          weight = averages ? k.broadcast(kernel.rule.hyper("weight")) : Value();
    kernel.eachUpdate(static_cast<int64_t>(op.getFactors().size()), {},
                      [&](Value i, Value update, Value mask, const Values &) -> Values {
                        Value at = k.offset(p, i);
                        Value updated = kernel.rule.updated(kernel.load(at, mask), update, decay, step);
                        kernel.store(updated, at, mask);
                        if (averages) {
                          Value averageAt = k.offset(average, i), old = kernel.load(averageAt, mask);
                          kernel.store(k.fma(weight, k.subf(updated, old), old), averageAt, mask);
                        }
                        return {};
                      });
  });
}

void attachOptimizerKernels(MLIRContext &context) {
  attachKernels<emitSquareSum, emitClipFactor, emitOptimize, emitRowMoments, emitColumnMoments, emitUpdateSquares,
                emitFactoredUpdate>(context);
}

} // namespace xfc
