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

static KernelInfo emitSquareSum(KernelBuilder &k, SquareSumOp op) {
  constexpr int64_t lanes = 8; // 64 bytes of f64 sums
  KernelBuilder::SumLanes vectors(k, lanes * k.bytes());
  View data = k.buffer(op.getTensorsMutable()), result = k.buffer(op.getResult());
  Value from = k.mul(k.chunk, part), count = k.immediate(0), to = k.min(k.add(from, part), count);
  auto wide = VectorType::get({lanes}, k.b.getF64Type());
  Value zero = k.constant(0, wide);
  Values sums = k.loop(from, to, 4 * lanes, Values(4, zero), [&](Value i, Values s) {
    for (int64_t c = 0; c < 4; ++c) {
      Value start = k.add(i, c * lanes), x = k.load(data + k.min(start, to), lanes);
      Value d = k.f64Of(k.select(k.lanesBelow(start, to), x, 0));
      s[c] = k.fma(d, d, s[c]);
    }
    return s;
  });
  Value second = k.addf(sums[2], sums[3]), total = k.sum(k.addf(k.addf(sums[0], sums[1]), second));
  k.store(total, result + k.chunk);
  return {{Partition::Unit::Elements, part, 1}, 0};
}

static KernelInfo emitClipFactor(KernelBuilder &k, ClipFactorOp op) {
  Type f64 = k.b.getF64Type();
  Value total = k.constant(0, f64), zero = total;
  for (auto [i, tensor] : llvm::enumerate(op.getSums())) {
    View data = k.buffer(op.getSumsMutable()[i]);
    const int64_t count = cast<RankedTensorType>(tensor.getType()).getNumElements();
    total = k.loop(0, count, 1, ValueRange{total},
                   [&](Value j, Values s) -> Values { return {k.addf(s[0], k.f64Of(k.load(data + j)))}; })[0];
  }
  Value norm = k.sqrt(total), one = k.constant(1, f64);
  Value most = k.f64Of(k.load(k.buffer(op.getMaxNormMutable())));
  Value exceeded = k.lessf(most, norm), clips = k.both(k.lessf(zero, most), exceeded);
  if (!op.getFactor().use_empty()) {
    View factor = k.buffer(op.getFactor());
    k.store(k.select(clips, k.divf(most, norm), one), factor);
  }
  if (!op.getNorm().use_empty())
    k.store(norm, k.buffer(op.getNorm()));
  return {{Partition::Unit::One, 1, 1}, 0};
}

static KernelInfo emitOptimize(KernelBuilder &k, OptimizeOp op) {
  const int64_t lanes = k.lanes();
  auto scalarAt = [&](const View &p) { return k.elementOf(k.load(p)); };
  auto hyper = [&](StringRef name) { return scalarAt(k.buffer(op.getHyperMutable()) + op.getHyperIndex(name)); };
  const OptimizerStep step = optimizerStep(k, op, hyper, [&](Value x) { return k.broadcast(x); });
  Value factor = k.broadcast(scalarAt(k.buffer(op.getFactorMutable())));
  // The tensors of a group follow each other in memory, starting with the first.
  View p = k.buffer(op.getParametersMutable()), g = k.buffer(op.getGradientsMutable());
  SmallVector<View> blocks;
  for (unsigned i = 0; i < op.getNumStates(); ++i)
    blocks.push_back(k.buffer(op->getOpOperand(op.getState(i).getBeginOperandIndex())));
  Value from = k.mul(k.chunk, part), count = k.immediate(0), to = k.min(k.add(from, part), count);
  auto update = [&](Value i, const std::function<void(Value, const View &)> &write) {
    View pAt = p + i;
    Value parameter = k.load(pAt, lanes);
    Value gradient = k.mulf(factor, k.load(g + i, lanes));
    SmallVector<View> places;
    Values states;
    for (const View &block : blocks) {
      places.push_back(block + i);
      states.push_back(k.load(places.back(), lanes));
    }
    Value updated = step(parameter, gradient, states);
    for (auto [state, place] : llvm::zip_equal(states, places))
      write(state, place);
    write(updated, pAt);
  };
  auto updateRange = [&](Value begin, Value end) {
    Value whole = k.add(begin, k.mul(k.div(k.max(k.sub(end, begin), 0), lanes), lanes));
    k.loop(begin, whole, lanes, [&](Value i) { update(i, [&](Value x, const View &place) { k.store(x, place); }); });
    k.when(k.less(whole, end), [&] {
      Value mask = k.lanesBelow(whole, end);
      update(whole, [&](Value x, const View &place) { k.storeMasked(x, place, mask); });
    });
  };
  const KernelInfo info = {{Partition::Unit::Elements, part, 1}, 0};
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
  Value immediates = k.field(k.call, offsetof(xfc_call, immediates), k.ptr);
  View buffers = k.at(k.field(k.call, offsetof(xfc_call, buffers), k.ptr), k.ptr);
  Value rest = k.loop(0, k.immediate(1), 1, ValueRange{from}, [&](Value w, Values state) -> Values {
    auto number = [&](int64_t i) { return k.loadI64(immediates, k.add(k.mul(w, 3), 2 + i)); };
    Value weight = number(0), rows = number(1), columns = number(2), weightEnd = k.add(weight, k.mul(rows, columns));
    updateRange(state[0], k.min(weight, to));
    Value tall = k.mul(columns, panel);
    auto panelsBefore = [&](Value element) {
      Value inside = k.max(k.sub(element, weight), 0);
      Value count = k.div(k.add(inside, k.sub(tall, 1)), tall);
      return k.min(count, k.div(k.add(rows, panel - 1), panel));
    };
    auto updatePanel = [&](Value tile) {
      Value first = k.mul(tile, panel), last = k.min(k.add(first, panel), rows);
      k.loop(0, columns, columnsOfBlock, [&](Value column) {
        Value end = k.min(k.add(column, columnsOfBlock), columns);
        k.loop(first, last, 1, [&](Value row) {
          Value begin = k.add(weight, k.mul(row, columns)), stop = k.add(begin, end);
          updateRange(k.add(begin, column), stop);
        });
        for (bool transposed : {false, true}) {
          View place = buffers + k.add(k.mul(w, 2), firstCopy + transposed);
          Value copy = LLVM::LoadOp::create(k.b, k.ptr, place.data);
          Value wanted = LLVM::ICmpOp::create(k.b, LLVM::ICmpPredicate::ne, copy, LLVM::ZeroOp::create(k.b, k.ptr));
          k.when(wanted,
                 [&] { emitPackRows(k, {transposed}, p + weight, rows, columns, first, column, end, k.at(copy)); });
        }
      });
    };
    Value endsAfter = k.less(from, weightEnd);
    k.when(k.both(k.less(weight, to), endsAfter), [&] {
      Value end = panelsBefore(to);
      k.loop(panelsBefore(from), end, 1, updatePanel);
    });
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
        zero(k.constant(0, VectorType::get({lanes}, k.b.getF64Type()))) {}

  // The tensor's buffer in a group of operands or results of one buffer for each tensor, or for each matrix.
  View of(OperandRange group) const { return k.bufferAt(first(group), chunk.tensor); }
  View ofMatrix(OperandRange group) const { return k.bufferAt(first(group), chunk.matrix); }
  View of(ResultRange group) const { return k.bufferAt(group.front(), chunk.tensor); }
  View ofMatrix(ResultRange group) const { return k.bufferAt(group.front(), chunk.matrix); }

  // Runs `body` unless the tensor is frozen.
  KernelInfo run(const std::function<void()> &body) {
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
  Value load(const View &p, Value mask) { return mask ? k.loadMasked(p, mask) : k.load(p, lanes); }
  void store(Value x, const View &p, Value mask) { mask ? k.storeMasked(x, p, mask) : k.store(x, p); }
  Value squared(Value x, Value sum) {
    Value d = k.f64Of(x);
    return k.fma(d, d, sum);
  }
  void storeSum(Value sum, const View &sums) {
    View place = sums + chunk.number;
    k.store(k.sum(sum), place);
  }
  Value factor() { return k.load(k.buffer(op.getFactorMutable())); }

  // Runs body(i, update, mask, state) for the unscaled updates of the chunk's part, i being an element of the tensor.
  using UpdateBody = std::function<Values(Value, Value, Value, Values)>;
  Values eachUpdate(int64_t matrices, ValueRange state, const UpdateBody &body) {
    View g = of(op.getGradients()), rows = of(op.getRows());
    Value from = chunk.begin(k), to = chunk.end(k);
    const FactoredRule::Formula clipped = rule.clipped(factor());
    return choose(
        op.getGradients().size(), matrices,
        [&] {
          View factors = ofMatrix(op.getFactors());
          return k.loop(from, to, 1, state, [&](Value row, const Values &outer) {
            Value first = k.mul(row, chunk.columns);
            Value inverse = k.broadcast(k.divf(1, k.sqrt(k.load(rows + row))));
            return eachVector(k.index(0), chunk.columns, outer, [&](Value column, Value mask, Values s) {
              Value i = k.add(first, column), x = clipped(load(g + i, mask));
              Value update = k.mulf(k.mulf(x, load(factors + column, mask)), inverse);
              return body(i, update, mask, std::move(s));
            });
          });
        },
        [&] {
          return eachVector(from, to, state, [&](Value i, Value mask, Values s) {
            Value mean = load(rows + i, mask);
            if (mask) // no division by 0 in lanes that are not used
              mean = k.select(mask, mean, 1);
            Value root = k.sqrt(mean);
            return body(i, k.divf(clipped(load(g + i, mask)), root), mask, std::move(s));
          });
        });
  }

  KernelBuilder &k;
  Op op;

private:
  // An op's groups may be empty, but not those whose buffers a kernel asks for.
  BufferIndex first(OperandRange group) const { return op->getOpOperand(group.getBeginOperandIndex()); }
  KernelBuilder::SumLanes vectors;

public:
  const ChunkOfTensor chunk;
  const FactoredRule rule;
  const Value zero;
};

} // namespace

static KernelInfo emitRowMoments(KernelBuilder &k, RowMomentsOp op) {
  const auto n = static_cast<int64_t>(op.getParameters().size()),
             m = static_cast<int64_t>(op.getResultSegment(2).size());
  FactoredKernel kernel(k, op, n);
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    View p = kernel.of(op.getParameters()), g = kernel.of(op.getGradients()), rows = kernel.of(op.getRows());
    Value from = chunk.begin(k), to = chunk.end(k);
    const FactoredRule::Formula clipped = kernel.rule.clipped(kernel.factor());
    auto matrix = [&]() -> Values {
      Value before = k.mul(chunk.number, chunk.columns);
      View columns = kernel.ofMatrix(op.getResultSegment(2)) + before;
      Value width = k.f64OfInteger(chunk.columns);
      const auto newMean = kernel.rule.newMean(/*vectors=*/false);
      kernel.eachVector(k.index(0), chunk.columns, {}, [&](Value column, Value mask, const Values &) -> Values {
        kernel.store(kernel.zero, columns + column, mask);
        return {};
      });
      return k.loop(from, to, 1, ValueRange{kernel.zero}, [&](Value row, Values squares) -> Values {
        Value first = k.mul(row, chunk.columns);
        Values sums = kernel.eachVector(
            k.index(0), chunk.columns, {kernel.zero, squares[0]}, [&](Value column, Value mask, Values s) -> Values {
              Value i = k.add(first, column), x = k.f64Of(clipped(kernel.load(g + i, mask)));
              View sum = columns + column;
              kernel.store(k.fma(x, x, kernel.load(sum, mask)), sum, mask);
              return {k.fma(x, x, s[0]), kernel.squared(kernel.load(p + i, mask), s[1])};
            });
        View at = rows + row;
        Value square = k.divf(k.sum(sums[0]), width);
        k.store(k.elementOf(newMean(k.f64Of(k.load(at)), square)), at);
        return {sums[1]};
      });
    };
    auto column = [&] {
      const auto newMean = kernel.rule.newMean(/*vectors=*/true);
      return kernel.eachVector(from, to, {kernel.zero}, [&](Value i, Value mask, Values s) -> Values {
        Value x = k.f64Of(clipped(kernel.load(g + i, mask)));
        View at = rows + i;
        Value square = k.mulf(x, x);
        kernel.store(k.elementOf(newMean(k.f64Of(kernel.load(at, mask)), square)), at, mask);
        return {kernel.squared(kernel.load(p + i, mask), s[0])};
      });
    };
    View sums = kernel.of(op.getResultSegment(1));
    kernel.storeSum(kernel.choose(n, m, matrix, column)[0], sums);
  });
}

static KernelInfo emitColumnMoments(KernelBuilder &k, ColumnMomentsOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getRows().size()));
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    View rows = kernel.of(op.getRows()), sums = kernel.of(op.getColumnSums()), columns = kernel.of(op.getColumns()),
         factors = kernel.of(op.getResultSegment(1));
    Value total =
        k.sum(kernel.eachVector(k.index(0), chunk.rows, {kernel.zero}, [&](Value i, Value mask, Values s) -> Values {
          return {k.addf(s[0], k.f64Of(kernel.load(rows + i, mask)))};
        })[0]);
    Value height = k.f64OfInteger(chunk.rows), mean = k.broadcast(k.divf(total, height)), wide = k.broadcast(height);
    const auto newMean = kernel.rule.newMean(/*vectors=*/true);
    Value from = k.mul(chunk.number, ColumnMomentsOp::columnsOfChunk),
          to = k.min(k.add(from, ColumnMomentsOp::columnsOfChunk), chunk.columns);
    kernel.eachVector(from, to, {}, [&](Value column, Value mask, const Values &) -> Values {
      Value sum = k.loop(0, chunk.parts, 1, ValueRange{kernel.zero}, [&](Value part, Values s) -> Values {
        return {k.addf(s[0], kernel.load(sums + k.add(k.mul(part, chunk.columns), column), mask))};
      })[0];
      View at = columns + column;
      Value square = k.divf(sum, wide), updated = newMean(k.f64Of(kernel.load(at, mask)), square);
      kernel.store(k.elementOf(updated), at, mask);
      View factor = factors + column;
      kernel.store(k.elementOf(k.sqrt(k.divf(mean, updated))), factor, mask);
      return {};
    });
  });
}

static KernelInfo emitUpdateSquares(KernelBuilder &k, UpdateSquaresOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getGradients().size()));
  return kernel.run([&] {
    Value sum = kernel.eachUpdate(
        static_cast<int64_t>(op.getFactors().size()), {kernel.zero},
        [&](Value, Value update, Value, Values s) -> Values { return {kernel.squared(update, s[0])}; })[0];
    kernel.storeSum(sum, kernel.of(op.getSquares()));
  });
}

static KernelInfo emitFactoredUpdate(KernelBuilder &k, FactoredUpdateOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getParameters().size()));
  const ChunkOfTensor &chunk = kernel.chunk;
  const bool averages = !op.getAverages().empty();
  return kernel.run([&] {
    Value updateSquares = sumOfParts(k, kernel.of(op.getUpdateSquares()), chunk.parts);
    auto [decayed, stepped] =
        kernel.rule.scales(sumOfParts(k, kernel.of(op.getParameterSquares()), chunk.parts), updateSquares);
    Value decay = k.broadcast(decayed), step = k.broadcast(stepped);
    View p = kernel.of(op.getParameters()), average = averages ? kernel.of(op.getAverages()) : View();
    Value weight = averages ? k.broadcast(kernel.rule.hyper("weight")) : Value();
    kernel.eachUpdate(static_cast<int64_t>(op.getFactors().size()), {},
                      [&](Value i, Value update, Value mask, const Values &) -> Values {
                        View at = p + i;
                        Value updated = kernel.rule.updated(kernel.load(at, mask), update, decay, step);
                        kernel.store(updated, at, mask);
                        if (averages) {
                          View averageAt = average + i;
                          Value old = kernel.load(averageAt, mask);
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
