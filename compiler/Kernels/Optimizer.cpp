// The optimizer over blocks of parameters: the norm of their gradients, a step in place, and the rule that factors the
// second moment.
#include "Optimizers.h"
#include "RowKernels.h"
#include "llvm/ADT/bit.h"

using namespace mlir;

namespace xfc {

constexpr int64_t part = SquareSumOp::elementsOfPart; // of a chunk, too

static Partition emitSquareSum(Machine &k, SquareSumOp op) {
  const std::unique_ptr<Spread> threads = k.overChunk();
  Value from = k.mul(k.chunk, part), count = k.elementCount(), to = k.min(k.add(from, part), count);
  const View data = k.buffer(op.getTensorsMutable()), sums = k.buffer(op.getResult());
  Value total = threads->sumOfSquares(data, from, to);
  threads->once([&] { k.store(total, sums + k.chunk); });
  return {Partition::Unit::Elements, part, 1};
}

static Partition emitClipFactor(Machine &k, ClipFactorOp op) {
  const std::unique_ptr<Spread> threads = k.overChunk();
  SmallVector<std::pair<View, int64_t>> sums;
  for (OpOperand &block : op.getSumsMutable())
    sums.emplace_back(k.buffer(block), cast<RankedTensorType>(block.get().getType()).getNumElements());
  Value total = threads->sumOfBlocks(sums);
  threads->once([&] {
    Value norm = k.sqrt(total), most = k.f64Of(k.load(k.buffer(op.getMaxNormMutable())));
    Value exceeded = k.lessf(most, norm), clips = k.both(k.lessf(0, most), exceeded);
    if (!op.getFactor().use_empty()) {
      const View factor = k.buffer(op.getFactor());
      k.store(k.select(clips, k.divf(most, norm), 1), factor);
    }
    if (!op.getNorm().use_empty())
      k.store(norm, k.buffer(op.getNorm()));
  });
  return {Partition::Unit::One, 1, 1};
}

static Partition emitOptimize(Machine &k, OptimizeOp op) {
  const OptimizerBlocks step = optimizerBlocks(k, op);
  Value from = k.mul(k.chunk, part), count = k.elementCount();
  k.update(step.blocks, from, k.min(k.add(from, part), count), step.compute);
  return {Partition::Unit::Elements, part, 1};
}

// The ops of a rule that factors the second moment.
namespace {

// The tensor that a chunk belongs to, in a launch that takes tensors one by one (xfc_parted_tensor).
struct ChunkOfTensor {
  ChunkOfTensor(CodeBuilder &k, int64_t tensors);
  Value tensor; // its index
  Value number; // of the chunk among the tensor's
  Value rows, columns, per, parts, matrix, group;
  Value isMatrix; // whether it has two or more dimensions
  Value updated;  // whether it is updated at all
  // The rows of the part with the chunk's number.
  Value begin(CodeBuilder &k) const { return k.mul(number, per); }
  Value end(CodeBuilder &k) const { return k.min(k.add(begin(k), per), rows); }
};

ChunkOfTensor::ChunkOfTensor(CodeBuilder &k, int64_t tensors) {
  auto of = [&](Value tensor, size_t offset) {
    return k.inTable(offsetof(xfc_call, tensors), sizeof(xfc_parted_tensor), tensor, offset);
  };
  // A binary search for the last tensor whose first chunk is not after this one.
  tensor = k.index(0);
  for (auto step = static_cast<int64_t>(llvm::bit_floor(static_cast<uint64_t>(tensors - 1))); step > 0; step /= 2) {
    Value next = k.add(tensor, step), known = k.min(next, tensors - 1);
    Value after = k.add(k.chunk, 1), begun = k.less(of(known, offsetof(xfc_parted_tensor, first)), after);
    tensor = k.select(k.both(k.less(next, tensors), begun), next, tensor);
  }
  number = k.sub(k.chunk, of(tensor, offsetof(xfc_parted_tensor, first)));
  rows = of(tensor, offsetof(xfc_parted_tensor, rows));
  columns = of(tensor, offsetof(xfc_parted_tensor, columns));
  per = of(tensor, offsetof(xfc_parted_tensor, per));
  parts = of(tensor, offsetof(xfc_parted_tensor, parts));
  matrix = of(tensor, offsetof(xfc_parted_tensor, matrix));
  isMatrix = k.less(-1, matrix);
  group = of(tensor, offsetof(xfc_parted_tensor, group));
  updated = k.less(-1, group);
}

template <typename Op> class FactoredKernel {
public:
  FactoredKernel(Machine &k, Op op, int64_t tensors)
      : k(k), op(op), ofChunk(k.overChunk()), ofRow(k.overRow()), chunk(k, tensors) {
    Value first = k.mul(k.max(chunk.group, 0), op.getHyper().getType().getNumElements());
    hypers = k.buffer(op.getHyperMutable()) + first;
  }

  // The tensor's buffer in a group of operands or results of one buffer for each tensor, or for each matrix.
  View of(OperandRange group) const { return k.bufferAt(first(group), chunk.tensor); }
  View ofMatrix(OperandRange group) const { return k.bufferAt(first(group), chunk.matrix); }
  View of(ResultRange group) const { return k.bufferAt(group.front(), chunk.tensor); }
  View ofMatrix(ResultRange group) const { return k.bufferAt(group.front(), chunk.matrix); }

  // Runs `body` unless the tensor is frozen.
  Partition run(const std::function<void()> &body) {
    k.when(chunk.updated, body);
    return {Partition::Unit::Elements, 1, 1};
  }
  // Runs one of the two, for a tensor that is a matrix, or that is not; only those that some tensor of the op needs.
  Values choose(int64_t tensors, int64_t matrices, const std::function<Values()> &matrix,
                const std::function<Values()> &column) {
    if (matrices == 0 || matrices == tensors)
      return matrices == 0 ? column() : matrix();
    return k.choose(chunk.isMatrix, matrix, column);
  }
  Value squared(Value x, Value sum) {
    Value d = k.f64Of(x);
    return k.fma(d, d, sum);
  }
  // Stores the sum of a state for the chunk's part.
  void storeSum(Value state, const View &sums) {
    Value total = ofChunk->sum(state);
    ofChunk->once([&] {
      View place = sums + chunk.number;
      k.store(total, place);
    });
  }

  // A hyperparameter of the tensor as a scalar of the element type, or in f64. What depends only on these is computed
  // once, at the builder's insertion point.
  Value hyper(StringRef name) { return k.load(hypers + op.getHyperIndex(name)); }
  Value wideHyper(StringRef name) { return k.f64Of(hyper(name)); }
  // An element of a gradient after clipping by the norm and by value.
  std::function<Value(Value)> clipping() {
    Value factor = k.load(k.buffer(op.getFactorMutable())), most = hyper("limit"), least = k.subf(0, most);
    return [=, this](Value given) { return clamped(k, k.mulf(factor, given), least, most); };
  }
  // A mean of squares, given the old one and the squares of this step, all in f64: scalars, or vectors of them.
  std::function<Value(Value, Value)> newMean() {
    Value share = wideHyper("share"), eps1 = wideHyper("eps1"), kept = k.subf(1, share);
    // Not mean + share (square - mean), which would lose eps1, and with it all that keeps a mean from 0, if share is 1.
    return [=, this](Value mean, Value square) {
      Value before = k.mulf(kept, mean);
      return k.fma(share, k.addf(square, eps1), before);
    };
  }
  // The factors of the old parameter and of the unscaled update in what is subtracted from the parameter, as scalars of
  // the element type, given the sums of squares of the parameter and of the update in f64.
  std::pair<Value, Value> scales(Value parameterSquares, Value updateSquares) {
    // Divisions in f64 are subroutines on a GPU, which need registers: there are as few as possible.
    Value elements = k.f64OfInteger(k.mul(chunk.rows, chunk.columns)), one = k.constant(1, elements),
          zero = k.constant(0, elements), share = k.divf(one, elements);
    auto rootOfMean = [&](Value sum) { return k.sqrt(k.mulf(sum, share)); };
    Value least = wideHyper("eps2"), ofParameters = rootOfMean(parameterSquares);
    Value relative = k.select(k.lessf(least, ofParameters), ofParameters, least);
    Value scale = k.select(k.lessf(zero, wideHyper("scales")), relative, one), rate = k.mulf(wideHyper("rate"), scale);
    Value ofUpdates = rootOfMean(updateSquares);
    Value clipped = k.divf(wideHyper("clip_threshold"), ofUpdates); // infinite if nothing is updated
    Value step = k.mulf(rate, k.select(k.lessf(clipped, one), clipped, one));
    return {k.elementOf(k.mulf(rate, wideHyper("decay"))), k.elementOf(step)};
  }

  // Runs body(i, update, threads, mask, state) for the unscaled updates of the chunk's part, i being an element of the
  // tensor.
  using UpdateBody = std::function<Values(Value, Value, Spread &, Value, Values)>;
  Values eachUpdate(int64_t matrices, ValueRange state, const UpdateBody &body) {
    View g = of(op.getGradients()), rows = of(op.getRows());
    Value from = chunk.begin(k), to = chunk.end(k);
    const auto clipped = clipping();
    return choose(
        op.getGradients().size(), matrices,
        [&] {
          View factors = ofMatrix(op.getFactors());
          return k.eachRow(from, to, state, [&](Value row, const Values &outer) {
            Value before = k.mul(row, chunk.columns), inverse = k.divf(1, k.sqrt(k.load(rows + row)));
            return ofRow->each(k.index(0), chunk.columns, outer, [&](Value column, Value mask, Values s) {
              Value i = k.add(before, column), x = clipped(ofRow->load(g + i, mask));
              Value update = k.mulf(k.mulf(x, ofRow->load(factors + column, mask)), inverse);
              return body(i, update, *ofRow, mask, std::move(s));
            });
          });
        },
        [&] {
          return ofChunk->each(from, to, state, [&](Value i, Value mask, Values s) {
            Value mean = ofChunk->load(rows + i, mask);
            if (mask) // no division by 0 in lanes that are not used
              mean = k.select(mask, mean, 1);
            Value root = k.sqrt(mean), update = k.divf(clipped(ofChunk->load(g + i, mask)), root);
            return body(i, update, *ofChunk, mask, std::move(s));
          });
        });
  }

  Machine &k;
  Op op;
  const std::unique_ptr<Spread> ofChunk, ofRow;
  const ChunkOfTensor chunk;

private:
  // An op's groups may be empty, but not those whose buffers a kernel asks for.
  BufferIndex first(OperandRange group) const { return op->getOpOperand(group.getBeginOperandIndex()); }
  View hypers; // of the tensor
};

} // namespace

static Partition emitRowMoments(Machine &k, RowMomentsOp op) {
  const auto n = static_cast<int64_t>(op.getParameters().size()),
             m = static_cast<int64_t>(op.getResultSegment(2).size());
  FactoredKernel kernel(k, op, n);
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    View p = kernel.of(op.getParameters()), g = kernel.of(op.getGradients()), rows = kernel.of(op.getRows());
    Value from = chunk.begin(k), to = chunk.end(k), zero = k.index(0);
    const auto clipped = kernel.clipping();
    const auto newMean = kernel.newMean();
    Spread &ofRow = *kernel.ofRow, &ofChunk = *kernel.ofChunk;
    auto gradient = [&](Spread &threads, Value i, Value mask) { return k.f64Of(clipped(threads.load(g + i, mask))); };
    auto matrix = [&]() -> Values {
      Value before = k.mul(chunk.number, chunk.columns), width = k.f64OfInteger(chunk.columns);
      View columns = kernel.ofMatrix(op.getResultSegment(2)) + before;
      // Where one row follows the other, the sums of the columns are updated by each. Otherwise the gradients are read
      // once more, column by column.
      const bool inOrder = k.takesRowsInOrder();
      if (inOrder)
        ofRow.each(zero, chunk.columns, {}, [&](Value column, Value mask, const Values &) -> Values {
          View sum = columns + column;
          ofRow.store(ofRow.zeros(), sum, mask);
          return {};
        });
      Values squares = k.eachRow(from, to, {ofRow.zeros()}, [&](Value row, const Values &outer) -> Values {
        Value first = k.mul(row, chunk.columns), none = ofRow.zeros();
        Values sums =
            ofRow.each(zero, chunk.columns, {none, outer[0]}, [&](Value column, Value mask, Values s) -> Values {
              Value i = k.add(first, column), x = gradient(ofRow, i, mask);
              if (inOrder) {
                View sum = columns + column;
                ofRow.store(k.fma(x, x, ofRow.load(sum, mask)), sum, mask);
              }
              Value square = k.fma(x, x, s[0]);
              return {square, kernel.squared(ofRow.load(p + i, mask), s[1])};
            });
        View at = rows + row;
        Value sum = ofRow.sum(sums[0]);
        ofRow.once([&] {
          Value square = k.divf(sum, width);
          k.store(k.elementOf(newMean(k.f64Of(k.load(at)), square)), at);
        });
        return {sums[1]};
      });
      if (!inOrder)
        ofChunk.each(zero, chunk.columns, {}, [&](Value column, Value mask, const Values &) -> Values {
          Value sum = k.loop(from, to, 1, ValueRange{ofChunk.zeros()}, [&](Value row, Values s) -> Values {
            Value x = gradient(ofChunk, k.add(k.mul(row, chunk.columns), column), mask);
            return {k.fma(x, x, s[0])};
          })[0];
          View place = columns + column;
          ofChunk.store(sum, place, mask);
          return {};
        });
      return squares;
    };
    auto column = [&] {
      return ofChunk.each(from, to, {ofChunk.zeros()}, [&](Value i, Value mask, Values s) -> Values {
        Value x = gradient(ofChunk, i, mask), square = k.mulf(x, x);
        View at = rows + i;
        ofChunk.store(k.elementOf(newMean(k.f64Of(ofChunk.load(at, mask)), square)), at, mask);
        return {kernel.squared(ofChunk.load(p + i, mask), s[0])};
      });
    };
    const View sums = kernel.of(op.getResultSegment(1));
    kernel.storeSum(kernel.choose(n, m, matrix, column)[0], sums);
  });
}

static Partition emitColumnMoments(Machine &k, ColumnMomentsOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getRows().size()));
  const ChunkOfTensor &chunk = kernel.chunk;
  return kernel.run([&] {
    View rows = kernel.of(op.getRows()), sums = kernel.of(op.getColumnSums()), columns = kernel.of(op.getColumns()),
         factors = kernel.of(op.getResultSegment(1));
    Spread &threads = *kernel.ofChunk;
    Value none = threads.zeros();
    Value total =
        threads.sum(threads.each(k.index(0), chunk.rows, {none}, [&](Value i, Value mask, Values s) -> Values {
          return {k.addf(s[0], k.f64Of(threads.load(rows + i, mask)))};
        })[0]);
    Value height = k.f64OfInteger(chunk.rows), mean = k.divf(total, height);
    const auto newMean = kernel.newMean();
    Value from = k.mul(chunk.number, ColumnMomentsOp::columnsOfChunk),
          to = k.min(k.add(from, ColumnMomentsOp::columnsOfChunk), chunk.columns);
    threads.each(from, to, {}, [&](Value column, Value mask, const Values &) -> Values {
      Value sum = k.loop(0, chunk.parts, 1, ValueRange{none}, [&](Value part, Values s) -> Values {
        return {k.addf(s[0], threads.load(sums + k.add(k.mul(part, chunk.columns), column), mask))};
      })[0];
      View at = columns + column, factor = factors + column;
      Value square = k.divf(sum, height), updated = newMean(k.f64Of(threads.load(at, mask)), square);
      threads.store(k.elementOf(updated), at, mask);
      threads.store(k.elementOf(k.sqrt(k.divf(mean, updated))), factor, mask);
      return {};
    });
  });
}

static Partition emitUpdateSquares(Machine &k, UpdateSquaresOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getGradients().size()));
  return kernel.run([&] {
    Value none = kernel.ofChunk->zeros();
    Value sum = kernel.eachUpdate(
        static_cast<int64_t>(op.getFactors().size()), {none},
        [&](Value, Value update, Spread &, Value, Values s) -> Values { return {kernel.squared(update, s[0])}; })[0];
    kernel.storeSum(sum, kernel.of(op.getSquares()));
  });
}

static Partition emitFactoredUpdate(Machine &k, FactoredUpdateOp op) {
  FactoredKernel kernel(k, op, static_cast<int64_t>(op.getParameters().size()));
  const bool averages = !op.getAverages().empty();
  return kernel.run([&] {
    auto sumOfParts = [&](const View &squares) { // in their order
      return k.loop(0, kernel.chunk.parts, 1, ValueRange{k.constant(0, squares.element)},
                    [&](Value i, Values s) -> Values { return {k.addf(s[0], k.load(squares + i))}; })[0];
    };
    Value updates = sumOfParts(kernel.of(op.getUpdateSquares())),
          parameters = sumOfParts(kernel.of(op.getParameterSquares()));
    auto [decay, step] = kernel.scales(parameters, updates);
    View p = kernel.of(op.getParameters()), average = averages ? kernel.of(op.getAverages()) : View();
    Value weight = averages ? kernel.hyper("weight") : Value();
    kernel.eachUpdate(
        static_cast<int64_t>(op.getFactors().size()), {},
        [&, decay = decay, step = step](Value i, Value update, Spread &threads, Value mask, const Values &) -> Values {
          View at = p + i;
          Value old = threads.load(at, mask), move = k.mulf(step, update),
                updated = k.subf(old, k.fma(decay, old, move));
          threads.store(updated, at, mask);
          if (averages) {
            View averageAt = average + i;
            Value before = threads.load(averageAt, mask);
            threads.store(k.fma(weight, k.subf(updated, before), before), averageAt, mask);
          }
          return {};
        });
  });
}

void attachOptimizerBodies(MLIRContext &context) {
  attachRowKernels<emitSquareSum, emitClipFactor, emitOptimize, emitRowMoments, emitColumnMoments, emitUpdateSquares,
                   emitFactoredUpdate>(context);
}

} // namespace xfc
