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

// The ops of a rule that factors the second moment. A warp takes a row of a matrix.
namespace {

template <typename Op> class FactoredKernel {
public:
  FactoredKernel(KernelBuilder &k, Op op, int64_t tensors)
      : k(k), op(op), chunk(k, tensors, op.getHyperMutable(), op.getHyper().getType().getNumElements()),
        rule(
            k, chunk, [op](StringRef name) mutable { return op.getHyperIndex(name); }, [](Value x) { return x; }),
        f64(k.b.getF64Type()), zero(k.constant(0, f64)) {}

  // The tensor's buffer in a group of operands or results of one buffer for each tensor, or for each matrix.
  Value of(OperandRange group) const { return k.bufferAt(group.getBeginOperandIndex(), chunk.tensor); }
  Value ofMatrix(OperandRange group) const { return k.bufferAt(group.getBeginOperandIndex(), chunk.matrix); }
  Value of(ResultRange group) const { return k.bufferAt(first(group), chunk.tensor); }
  Value ofMatrix(ResultRange group) const { return k.bufferAt(first(group), chunk.matrix); }

  // Runs `body` unless the tensor is frozen.
  Backend::KernelInfo run(const std::function<void()> &body) {
    k.when(chunk.updated, body);
    return {{Partition::Unit::Elements, 1, 1}};
  }
  // Runs one of the two, for a tensor that is a matrix, or that is not; only those that some tensor of the op needs.
  Values choose(int64_t tensors, int64_t matrices, const std::function<Values()> &matrix,
                const std::function<Values()> &column) {
    if (matrices == 0 || matrices == tensors)
      return matrices == 0 ? column() : matrix();
    return k.choose(chunk.isMatrix, matrix, column);
  }

  // Spreads from .. to - 1 over the block's threads, over a warp's lanes, or over the block's warps: body(i, state).
  using Body = std::function<Values(Value, Values)>;
  Values byThread(Value from, Value to, ValueRange state, const Body &body) {
    return k.loop(k.add(from, k.i64Of(k.thread())), to, k.threads, state, body);
  }
  Values byLane(Value to, ValueRange state, const Body &body) {
    return k.loop(k.i64Of(k.lane()), to, KernelBuilder::warpSize, state, body);
  }
  Values byWarp(Value from, Value to, ValueRange state, const Body &body) {
    return k.loop(k.add(from, k.i64Of(k.warp())), to, k.warps(), state, body);
  }
  Value loadWide(Value p, Value i) { return LLVM::LoadOp::create(k.b, f64, k.offset(p, i, f64)); }
  Value squared(Value x, Value sum) {
    Value d = k.f64Of(x);
    return k.fma(d, d, sum);
  }
  // Stores the sum of the threads' sums for the chunk's part.
  void storeSum(Value sum, Value p) {
    Value total = k.blockSum(sum);
    k.when(k.equal(k.thread(), k.i32Of(0)), [&] { LLVM::StoreOp::create(k.b, total, k.offset(p, chunk.number, f64)); });
  }
  Value factor() { return k.load(k.buffer(op.getFactorMutable())); }

  // Runs body(i, update, state) for the unscaled updates of the chunk's part, i being an element of the tensor.
  using UpdateBody = std::function<Values(Value, Value, Values)>;
  Values eachUpdate(int64_t matrices, ValueRange state, const UpdateBody &body) {
    Value g = of(op.getGradients()), rows = of(op.getRows()), from = chunk.begin(k), to = chunk.end(k);
    const FactoredRule::Formula clipped = rule.clipped(factor());
    return choose(
        op.getGradients().size(), matrices,
        [&] {
          Value factors = ofMatrix(op.getFactors());
          return byWarp(from, to, state, [&](Value row, const Values &outer) {
            Value first = k.mul(row, chunk.columns);
            Value inverse = k.divf(k.scalar(1), k.sqrt(k.load(k.offset(rows, row))));
            return byLane(chunk.columns, outer, [&](Value column, Values s) {
              Value i = k.add(first, column), x = clipped(k.load(k.offset(g, i)));
              return body(i, k.mulf(k.mulf(x, k.load(k.offset(factors, column))), inverse), std::move(s));
            });
          });
        },
        [&] {
          return byThread(from, to, state, [&](Value i, Values s) {
            Value update = k.divf(clipped(k.load(k.offset(g, i))), k.sqrt(k.load(k.offset(rows, i))));
            return body(i, update, std::move(s));
          });
        });
  }

  KernelBuilder &k;
  Op op;
  const ChunkOfTensor chunk;
  const FactoredRule rule;
  const Type f64;
  const Value zero;

private:
  int64_t first(ResultRange group) const {
    return static_cast<int64_t>(op->getNumOperands()) + cast<OpResult>(group.front()).getResultNumber();
  }
};

} // namespace

static Backend::KernelInfo emitRowMoments(KernelBuilder &k, RowMomentsOp op) {
  const auto n = static_cast<int64_t>(op.getParameters().size()),
             m = static_cast<int64_t>(op.getResultSegment(2).size());
  FactoredKernel kernel(k, op, n);
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    Value p = kernel.of(op.getParameters()), g = kernel.of(op.getGradients()), rows = kernel.of(op.getRows()),
          from = chunk.begin(k), to = chunk.end(k), zero = kernel.zero;
    const FactoredRule::Formula clipped = kernel.rule.clipped(kernel.factor());
    const auto newMean = kernel.rule.newMean(/*vectors=*/false);
    auto gradient = [&](Value i) { return k.f64Of(clipped(k.load(k.offset(g, i)))); };
    auto matrix = [&]() -> Values {
      Value width = k.f64OfInteger(chunk.columns);
      Values squares = kernel.byWarp(from, to, {zero}, [&](Value row, Values outer) -> Values {
        Value first = k.mul(row, chunk.columns);
        Values sums = kernel.byLane(chunk.columns, {zero, outer[0]}, [&](Value column, Values s) -> Values {
          Value i = k.add(first, column), x = gradient(i);
          return {k.fma(x, x, s[0]), kernel.squared(k.load(k.offset(p, i)), s[1])};
        });
        Value sum = k.warpSum(sums[0]), at = k.offset(rows, row);
        k.when(k.equal(k.lane(), k.i32Of(0)),
               [&] { k.store(k.elementOf(newMean(k.f64Of(k.load(at)), k.divf(sum, width))), at); });
        return {sums[1]};
      });
      // The gradients are read once more, column by column.
      Value columns = k.offset(kernel.ofMatrix(op.getResultSegment(2)), k.mul(chunk.number, chunk.columns), kernel.f64);
      kernel.byThread(k.index(0), chunk.columns, {}, [&](Value column, const Values &) -> Values {
        Value sum = k.loop(from, to, 1, ValueRange{zero}, [&](Value row, Values s) -> Values {
          Value x = gradient(k.add(k.mul(row, chunk.columns), column));
          return {k.fma(x, x, s[0])};
        })[0];
        LLVM::StoreOp::create(k.b, sum, k.offset(columns, column, kernel.f64));
        return {};
      });
      return squares;
    };
    auto column = [&] {
      return kernel.byThread(from, to, {zero}, [&](Value i, Values s) -> Values {
        Value x = gradient(i), at = k.offset(rows, i);
        k.store(k.elementOf(newMean(k.f64Of(k.load(at)), k.mulf(x, x))), at);
        return {kernel.squared(k.load(k.offset(p, i)), s[0])};
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
    Value total = k.blockSum(kernel.byThread(k.index(0), chunk.rows, {kernel.zero}, [&](Value i, Values s) -> Values {
      return {k.addf(s[0], k.f64Of(k.load(k.offset(rows, i))))};
    })[0]);
    Value height = k.f64OfInteger(chunk.rows), mean = k.divf(total, height);
    const auto newMean = kernel.rule.newMean(/*vectors=*/false);
    Value from = k.mul(chunk.number, ColumnMomentsOp::columnsOfChunk),
          to = k.min(k.add(from, ColumnMomentsOp::columnsOfChunk), chunk.columns);
    kernel.byThread(from, to, {}, [&](Value column, const Values &) -> Values {
      Value sum = k.loop(k.index(0), chunk.parts, 1, ValueRange{kernel.zero}, [&](Value part, Values s) -> Values {
        return {k.addf(s[0], kernel.loadWide(sums, k.add(k.mul(part, chunk.columns), column)))};
      })[0];
      Value at = k.offset(columns, column), updated = newMean(k.f64Of(k.load(at)), k.divf(sum, height));
      k.store(k.elementOf(updated), at);
      k.store(k.elementOf(k.sqrt(k.divf(mean, updated))), k.offset(factors, column));
      return {};
    });
  });
}

static Backend::KernelInfo emitUpdateSquares(KernelBuilder &k, UpdateSquaresOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getGradients().size()));
  return kernel.run([&] {
    Value sum =
        kernel.eachUpdate(static_cast<int64_t>(op.getFactors().size()), {kernel.zero},
                          [&](Value, Value update, Values s) -> Values { return {kernel.squared(update, s[0])}; })[0];
    kernel.storeSum(sum, kernel.of(op.getSquares()));
  });
}

static Backend::KernelInfo emitFactoredUpdate(KernelBuilder &k, FactoredUpdateOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getParameters().size()));
  const bool averages = !op.getAverages().empty();
  return kernel.run([&] {
    auto [decay, step] = kernel.rule.scales(sumOfParts(k, kernel.of(op.getParameterSquares()), kernel.chunk.parts),
                                            sumOfParts(k, kernel.of(op.getUpdateSquares()), kernel.chunk.parts));
    Value p = kernel.of(op.getParameters()), average = averages ? kernel.of(op.getAverages()) : Value(),
          weight = averages ? kernel.rule.hyper("weight") : Value();
    kernel.eachUpdate(static_cast<int64_t>(op.getFactors().size()), {},
                      [&, decay = decay, step = step](Value i, Value update, const Values &) -> Values {
                        Value at = k.offset(p, i), updated = kernel.rule.updated(k.load(at), update, decay, step);
                        k.store(updated, at);
                        if (averages) {
                          Value averageAt = k.offset(average, i), old = k.load(averageAt);
                          k.store(k.fma(weight, k.subf(updated, old), old), averageAt);
                        }
                        return {};
                      });
  });
}

void attachOptimizerKernels(MLIRContext &context) {
  attachKernels<emitSquareSum, emitClipFactor, emitOptimize, emitRowMoments, emitColumnMoments, emitUpdateSquares,
                emitFactoredUpdate>(context);
}

} // namespace xfc::gpu
