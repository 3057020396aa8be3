// The optimizer over blocks of parameters: the gradients' norm, and a step in place.
#include "Codegen/Optimizers.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc::gpu {

constexpr int64_t part = SquareSumOp::elementsOfPart; // also the elements of a chunk

static KernelInfo emitSquareSum(KernelBuilder &k, SquareSumOp op) {
  Type f64 = k.b.getF64Type();
  Value from = k.mul(k.chunk, part), count = k.immediate(0), to = k.min(k.add(from, part), count);
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

static KernelInfo emitOptimize(KernelBuilder &k, OptimizeOp op) {
  auto hyper = [&](StringRef name) { return k.load(k.buffer(op.getHyperMutable()) + op.getHyperIndex(name)); };
  const OptimizerStep step = optimizerStep(k, op, hyper, [](Value x) { return x; });
  Value factor = k.load(k.buffer(op.getFactorMutable()));
  // The tensors of a group (parameters, gradients, each state) are consecutive in memory.
  SmallVector<View> blocks = {k.buffer(op.getParametersMutable()), k.buffer(op.getGradientsMutable())};
  for (unsigned i = 0; i < op.getNumStates(); ++i)
    blocks.push_back(k.buffer(op->getOpOperand(op.getState(i).getBeginOperandIndex())));
  Value from = k.mul(k.chunk, part), count = k.immediate(0), to = k.min(k.add(from, part), count);
  k.overSpan(blocks, from, to, {}, [&](Value i, int64_t width, const Values &) -> Values {
    SmallVector<Values> loaded;
    for (const View &block : blocks)
      loaded.push_back(k.load(block + i, width));
    for (int64_t j = 0; j < width; ++j) {
      Values states;
      for (const Values &state : ArrayRef(loaded).drop_front(2))
        states.push_back(state[j]);
      loaded[0][j] = step(loaded[0][j], k.mulf(factor, loaded[1][j]), states);
      for (size_t s = 0; s < states.size(); ++s)
        loaded[2 + s][j] = states[s];
    }
    for (size_t s = 2; s < blocks.size(); ++s)
      k.store(loaded[s], blocks[s] + i);
    k.store(loaded[0], blocks[0] + i);
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
  View of(OperandRange group) const { return k.bufferAt(first(group), chunk.tensor); }
  View ofMatrix(OperandRange group) const { return k.bufferAt(first(group), chunk.matrix); }
  View of(ResultRange group) const { return k.bufferAt(group.front(), chunk.tensor); }
  View ofMatrix(ResultRange group) const { return k.bufferAt(group.front(), chunk.matrix); }

  // Runs `body` unless the tensor is frozen.
  KernelInfo run(const std::function<void()> &body) {
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
  Value squared(Value x, Value sum) {
    Value d = k.f64Of(x);
    return k.fma(d, d, sum);
  }
  // Stores the sum of the threads' sums for the chunk's part.
  void storeSum(Value sum, const View &sums) {
    Value total = k.blockSum(sum);
    k.when(k.equal(k.thread(), 0), [&] { k.store(total, sums + chunk.number); });
  }
  Value factor() { return k.load(k.buffer(op.getFactorMutable())); }

  // Runs body(i, update, state) for the unscaled updates of the chunk's part, i being an element of the tensor.
  using UpdateBody = std::function<Values(Value, Value, Values)>;
  Values eachUpdate(int64_t matrices, ValueRange state, const UpdateBody &body) {
    View g = of(op.getGradients()), rows = of(op.getRows());
    Value from = chunk.begin(k), to = chunk.end(k);
    const FactoredRule::Formula clipped = rule.clipped(factor());
    return choose(
        op.getGradients().size(), matrices,
        [&] {
          View factors = ofMatrix(op.getFactors());
          return byWarp(from, to, state, [&](Value row, const Values &outer) {
            Value first = k.mul(row, chunk.columns);
            Value inverse = k.divf(1, k.sqrt(k.load(rows + row)));
            return byLane(chunk.columns, outer, [&](Value column, Values s) {
              Value i = k.add(first, column), x = clipped(k.load(g + i));
              return body(i, k.mulf(k.mulf(x, k.load(factors + column)), inverse), std::move(s));
            });
          });
        },
        [&] {
          return byThread(from, to, state, [&](Value i, Values s) {
            Value root = k.sqrt(k.load(rows + i)), update = k.divf(clipped(k.load(g + i)), root);
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
  BufferIndex first(OperandRange group) const { return op->getOpOperand(group.getBeginOperandIndex()); }
};

} // namespace

static KernelInfo emitRowMoments(KernelBuilder &k, RowMomentsOp op) {
  const auto n = static_cast<int64_t>(op.getParameters().size()),
             m = static_cast<int64_t>(op.getResultSegment(2).size());
  FactoredKernel kernel(k, op, n);
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    View p = kernel.of(op.getParameters()), g = kernel.of(op.getGradients()), rows = kernel.of(op.getRows());
    Value from = chunk.begin(k), to = chunk.end(k), zero = kernel.zero;
    const FactoredRule::Formula clipped = kernel.rule.clipped(kernel.factor());
    const auto newMean = kernel.rule.newMean(/*vectors=*/false);
    auto gradient = [&](Value i) { return k.f64Of(clipped(k.load(g + i))); };
    auto matrix = [&]() -> Values {
      Value width = k.f64OfInteger(chunk.columns);
      Values squares = kernel.byWarp(from, to, {zero}, [&](Value row, Values outer) -> Values {
        Value first = k.mul(row, chunk.columns);
        Values sums = kernel.byLane(chunk.columns, {zero, outer[0]}, [&](Value column, Values s) -> Values {
          Value i = k.add(first, column), x = gradient(i);
          return {k.fma(x, x, s[0]), kernel.squared(k.load(p + i), s[1])};
        });
        Value sum = k.warpSum(sums[0]);
        View at = rows + row;
        k.when(k.equal(k.lane(), 0), [&] {
          Value mean = k.divf(sum, width);
          k.store(newMean(k.f64Of(k.load(at)), mean), at);
        });
        return {sums[1]};
      });
      // The gradients are read once more, column by column.
      Value before = k.mul(chunk.number, chunk.columns);
      View columns = kernel.ofMatrix(op.getResultSegment(2)) + before;
      kernel.byThread(k.index(0), chunk.columns, {}, [&](Value column, const Values &) -> Values {
        Value sum = k.loop(from, to, 1, ValueRange{zero}, [&](Value row, Values s) -> Values {
          Value x = gradient(k.add(k.mul(row, chunk.columns), column));
          return {k.fma(x, x, s[0])};
        })[0];
        k.store(sum, columns + column);
        return {};
      });
      return squares;
    };
    auto column = [&] {
      return kernel.byThread(from, to, {zero}, [&](Value i, Values s) -> Values {
        Value x = gradient(i);
        View at = rows + i;
        Value square = k.mulf(x, x);
        k.store(newMean(k.f64Of(k.load(at)), square), at);
        return {kernel.squared(k.load(p + i), s[0])};
      });
    };
    const View sums = kernel.of(op.getResultSegment(1));
    kernel.storeSum(kernel.choose(n, m, matrix, column)[0], sums);
  });
}

static KernelInfo emitColumnMoments(KernelBuilder &k, ColumnMomentsOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getRows().size()));
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    View rows = kernel.of(op.getRows()), sums = kernel.of(op.getColumnSums()), columns = kernel.of(op.getColumns()),
         factors = kernel.of(op.getResultSegment(1));
    Value total = k.blockSum(kernel.byThread(k.index(0), chunk.rows, {kernel.zero}, [&](Value i, Values s) -> Values {
      return {k.addf(s[0], k.f64Of(k.load(rows + i)))};
    })[0]);
    Value height = k.f64OfInteger(chunk.rows), mean = k.divf(total, height);
    const auto newMean = kernel.rule.newMean(/*vectors=*/false);
    Value from = k.mul(chunk.number, ColumnMomentsOp::columnsOfChunk),
          to = k.min(k.add(from, ColumnMomentsOp::columnsOfChunk), chunk.columns);
    kernel.byThread(from, to, {}, [&](Value column, const Values &) -> Values {
      Value sum = k.loop(0, chunk.parts, 1, ValueRange{kernel.zero}, [&](Value part, Values s) -> Values {
        return {k.addf(s[0], k.load(sums + k.add(k.mul(part, chunk.columns), column)))};
      })[0];
      View at = columns + column;
      Value square = k.divf(sum, height), updated = newMean(k.f64Of(k.load(at)), square);
      k.store(updated, at);
      const View factor = factors + column;
      k.store(k.sqrt(k.divf(mean, updated)), factor);
      return {};
    });
  });
}

static KernelInfo emitUpdateSquares(KernelBuilder &k, UpdateSquaresOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getGradients().size()));
  return kernel.run([&] {
    Value sum =
        kernel.eachUpdate(static_cast<int64_t>(op.getFactors().size()), {kernel.zero},
                          [&](Value, Value update, Values s) -> Values { return {kernel.squared(update, s[0])}; })[0];
    kernel.storeSum(sum, kernel.of(op.getSquares()));
  });
}

static KernelInfo emitFactoredUpdate(KernelBuilder &k, FactoredUpdateOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getParameters().size()));
  const bool averages = !op.getAverages().empty();
  return kernel.run([&] {
    Value updates = sumOfParts(k, kernel.of(op.getUpdateSquares()), kernel.chunk.parts),
          parameters = sumOfParts(k, kernel.of(op.getParameterSquares()), kernel.chunk.parts);
    auto [decay, step] = kernel.rule.scales(parameters, updates);
    View p = kernel.of(op.getParameters()), average = averages ? kernel.of(op.getAverages()) : View();
    Value weight = averages ? kernel.rule.hyper("weight") : Value();
    kernel.eachUpdate(static_cast<int64_t>(op.getFactors().size()), {},
                      [&, decay = decay, step = step](Value i, Value update, const Values &) -> Values {
                        View at = p + i;
                        Value updated = kernel.rule.updated(k.load(at), update, decay, step);
                        k.store(updated, at);
                        if (averages) {
                          View averageAt = average + i;
                          Value old = k.load(averageAt);
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
