// Products with a vocabulary, fused with the consumers of their logits: losses, gradients of losses, or candidates.
#include "Codegen/Softmax.h"
#include "Emitters.h"
#include "Kernels/RowKernels.h"
#include "ProductTile.h"
#include "WarpgroupTile.h"
#include <cmath>
#include <utility>

using namespace mlir;

namespace xfc::gpu {

namespace {

// A block has some rows and takes the vocabulary in slabs of 256 columns, in order. For each of its rows, a thread
// keeps four numbers of the logits that it has seen: the largest m, the sum of exp(x - m), the sum of x, and the
// label's logit; if rows have lists of labels, also the sum of the other labels' logits times their shares. They are
// merged at the end, in the order of lanes and warps. A second pass reads the logits back from memory and overwrites
// them with their gradient.
template <typename Op> class LinearLoss {
public:
  using Numbers = ArrayRef<std::pair<Value, Value RowLoss::*>>;
  // `wide` are the logits or their gradient, and `numbers` the results with one number for each row.
  LinearLoss(KernelBuilder &k, Op op, Value wide, Numbers numbers, std::optional<BufferIndex> dloss)
      : k(k), op(op), wide(wide), numbers(numbers), dloss(dloss), weight(op.getWeight().getType()),
        vocabulary(weight.getDimSize(0)), inner(weight.getDimSize(1)),
        listed(!op.getLabels().getType().getShape().empty()), kept(!wide.use_empty()),
        bf16(op.getCompute() == ComputeType::bf16), kinds(listed ? 5 : 4), room(listed ? 8 : 4), targets(k, op),
        access(k, vocabulary), biasAccess(k, vocabulary) {}

  static bool byWarpgroups(const Architecture &architecture, Op op) {
    return WarpgroupTile::multiplies(architecture, op.getCompute(), {op.getXMutable()});
  }
  KernelInfo emit() { return byWarpgroups(k.architecture, op) ? emitByWarpgroups() : emitByWarps(); }

private:
  static constexpr int64_t columnsOfSlab = 256;
  BufferIndex rows() { return op.getXMutable(); }

  KernelInfo emitByWarps() {
    const TileShape tile{64, columnsOfSlab, bf16 ? 32 : 16, 32, 64};
    k.threads = tile.threads();
    prepare(tile.rows);
    k.when(k.less(row, k.rowCount()), [&] {
      const Operand matrix = weightOperand(k, op.getWeightMutable(), weight, bf16, /*along=*/true);
      ProductTile product(k, tile, bf16, rowsOperand(k, rows(), inner, /*along=*/true), matrix);
      Value end = k.i32Of(static_cast<int32_t>(vocabulary)), terms = k.i32Of(static_cast<int32_t>(inner));
      Values state = k.loop(0, end, columnsOfSlab, begin(product), [&](Value column, Values s) {
        Values sums = product.multiply(k.truncated(row), column, terms);
        return take(product, column, sums, std::move(s));
      });
      const int64_t across = columnsOfSlab / tile.warpColumns;
      const View parts = sharedFor(tile.rows, across);
      leave(product, state, parts, across);
      finish(tile.rows, parts, across);
    });
    return {{Partition::Unit::Rows, tile.rows, 1}};
  }

  // Each row belongs to one warp.
  KernelInfo emitByWarpgroups() {
    using Product = WarpgroupTile;
    constexpr int64_t cluster = Product::clusterOfWeight;
    k.threads = Product::threads;
    prepare(Product::rows);
    Value first = k.mul(k.div(k.chunk, cluster), cluster * Product::rows);
    k.when(k.less(first, k.rowCount()), [&] {
      const BlockedWeight matrix(k, op.getWeightMutable(), weight, /*along=*/true);
      Product product(k, columnsOfSlab, rowsOperand(k, rows(), inner, /*along=*/true), matrix);
      const View parts = sharedFor(Product::rows, 1);
      product.multiplyEach(
          k.truncated(row), vocabulary, inner, [&] { return begin(product); },
          [&](Value column, ArrayRef<Value> sums, Values s) { return take(product, column, sums, std::move(s)); },
          [&](const Values &s) { leave(product, s, parts, 1); });
      finish(Product::rows, parts, 1);
    });
    return {{Partition::Unit::Rows, cluster * Product::rows, cluster}};
  }

  // The block's first row, for blocks of so many rows.
  void prepare(int64_t rowsOfBlock) {
    row = k.mul(k.chunk, rowsOfBlock);
    if (kept)
      access.include(BufferIndex(wide));
    if (op.getBias())
      biasAccess.include(k.buffer(op.getBiasMutable()).inRows(0));
    rowsLeft = k.truncated(k.rowCount());
  }
  View sharedFor(int64_t rowsOfBlock, int64_t across) {
    logSums = k.at(k.shared(rowsOfBlock * 4));
    return k.at(k.shared(rowsOfBlock * across * room * 4));
  }

  // A thread's state before the first slab.
  Values begin(const ThreadSums &product) {
    Value last = k.sub(rowsLeft, 1), firstRow = k.add(k.truncated(row), product.firstRow());
    Values state;
    for (int64_t r = 0; r < product.rowsOfThread(); ++r) {
      rowNumbers.push_back(k.add(firstRow, 8 * r));
      targetsOfRows.push_back(targets.of(k.i64Of(k.min(rowNumbers[r], last))));
      labelColumns.push_back(k.truncated(targetsOfRows[r].label));
      state.push_back(k.scalar(lowest));
      state.append(kinds - 1, k.scalar(0));
    }
    return state;
  }

  // The state after a slab, whose products the thread has; stores the logits if they are kept.
  Values take(const ThreadSums &product, Value column, ArrayRef<Value> sums, Values s) {
    const int64_t rowsOfThread = product.rowsOfThread(), pairs = product.pairsOfThread();
    Value first = k.add(column, product.firstColumn()), end = k.i32Of(static_cast<int32_t>(vocabulary));
    Values x(2 * pairs * rowsOfThread);
    for (int64_t pair = 0; pair < pairs; ++pair) {
      Value f = k.add(first, 8 * pair);
      Values bias(2, k.scalar(0));
      if (op.getBias()) {
        const View all = k.buffer(op.getBiasMutable());
        bias = biasAccess.load(all, k.boolean(true), f, 1);
      }
      for (int64_t r = 0; r < rowsOfThread; ++r) {
        const auto two = MutableArrayRef<Value>(x).slice((r * pairs + pair) * 2, 2);
        for (int64_t i = 0; i < 2; ++i) {
          Value y = product.sum(sums, r, pair, i);
          two[i] = op.getBias() ? k.addf(y, bias[i]) : y;
        }
        // The statistics are those of the logits that are stored: else probabilities would not add up to 1.
        if (kept && BufferIndex(wide).element().isBF16())
          llvm::copy(k.halvesOf(k.pairOfBF16(two[0], two[1])), two.begin());
      }
    }
    for (int64_t r = 0; r < rowsOfThread; ++r) {
      MutableArrayRef<Value> seen = MutableArrayRef<Value>(s).slice(kinds * r, kinds),
                             own = MutableArrayRef<Value>(x).slice(2 * pairs * r, 2 * pairs);
      if (kept) {
        Value isRow = k.less(rowNumbers[r], rowsLeft);
        access.store(own, k.rowOf(wide, k.i64Of(rowNumbers[r])), isRow, first);
      }
      auto columnOf = [&](int64_t i) { return k.add(first, i / 2 * 8 + i % 2); };
      auto inside = [&](int64_t i, Value value, double otherwise) {
        return vocabulary % columnsOfSlab ? k.select(k.less(columnOf(i), end), value, otherwise) : value;
      };
      Value most = seen[0];
      for (int64_t i = 0; i < 2 * pairs; ++i)
        most = k.maxf(inside(i, own[i], lowest), most);
      Value exponentials = k.mulf(seen[1], k.exp(k.subf(seen[0], most)));
      for (int64_t i = 0; i < 2 * pairs; ++i) {
        exponentials = k.addf(exponentials, inside(i, k.exp(k.subf(own[i], most)), 0));
        seen[2] = k.addf(seen[2], inside(i, own[i], 0));
        seen[3] = k.select(k.equal(columnOf(i), labelColumns[r]), own[i], seen[3]);
      }
      seen[0] = most;
      seen[1] = exponentials;
      if (listed)
        seen[4] = targetsOfRows[r].others(k, {seen[4]}, [&](Value token, Value share, Values sum) -> Values {
          Value logit = k.scalar(0), wanted = k.truncated(token);
          for (int64_t i = 0; i < 2 * pairs; ++i)
            logit = k.select(k.equal(columnOf(i), wanted), own[i], logit);
          return {k.addf(sum[0], k.mulf(share, logit))};
        })[0];
    }
    return s;
  }

  // Merges another part's numbers of a row into `s`.
  void merge(MutableArrayRef<Value> s, ArrayRef<Value> other) {
    Value most = k.maxf(other[0], s[0]);
    Value theirs = k.mulf(other[1], k.exp(k.subf(other[0], most)));
    s[1] = k.addf(k.mulf(s[1], k.exp(k.subf(s[0], most))), theirs);
    s[2] = k.addf(s[2], other[2]);
    for (int64_t i = 3; i < kinds; ++i)
      s[i] = k.addf(s[i], other[i]); // of the label's logit, one of the two is 0
    s[0] = most;
  }

  // Merges over the four lanes that share a row, and leaves the result in the part of the warp, of the `across` warps
  // that share the row.
  void leave(const ThreadSums &product, ArrayRef<Value> state, const View &parts, int64_t across) {
    for (int64_t r = 0; r < product.rowsOfThread(); ++r) {
      Values seen(state.slice(kinds * r, kinds));
      for (int64_t mask = 1; mask < 4; mask *= 2) {
        Values other;
        for (Value v : seen)
          other.push_back(k.shuffleXor(v, mask));
        merge(seen, other);
      }
      Value which = k.rem(k.warp(), across);
      const View part = parts + k.mul(k.add(k.mul(k.add(product.firstRow(), 8 * r), across), which), room);
      k.when(k.equal(k.bitAnd(k.lane(), 3), 0), [&] {
        k.store(ArrayRef<Value>(seen).take_front(4), part);
        if (listed)
          k.store(seen[4], part + 4);
      });
    }
  }

  // Merges over the warps that share a row, stores what is known of each row, and turns the logits into their gradient.
  void finish(int64_t rowsOfBlock, const View &parts, int64_t across) {
    k.barrier();
    Value thread = k.thread(), own = k.add(k.truncated(row), thread), isRow = k.less(own, rowsLeft);
    k.when(k.both(k.less(k.thread(), rowsOfBlock), isRow), [&] {
      auto part = [&](int64_t warp) {
        const View from = parts + k.mul(k.add(k.mul(k.thread(), across), warp), room);
        Values part = k.load(from, 4);
        if (listed)
          part.push_back(k.load(from + 4));
        return part;
      };
      Values all = part(0);
      for (int64_t warp = 1; warp < across; ++warp)
        merge(all, part(warp));
      Value at = k.i64Of(own), lse = k.addf(all[0], k.log(all[1])), mean = k.mulf(all[2], 1.0 / vocabulary);
      const RowLoss values = targets.of(at).losses(k, lse, mean, all[3], listed ? all[4] : Value());
      for (auto [result, value] : numbers)
        k.storeIfRead(values.*value, result, at);
      k.store(lse, logSums + k.thread());
    });
    if (!dloss || !kept)
      return;
    k.barrier(); // the rows' log-sum-exps and all logits have been stored
    RowsInMemory lines = RowsInMemory::ofWarp(k, vocabulary);
    const View logits = k.rowsOf(wide), dlosses = k.rowsOf(*dloss);
    lines.vectorized({wide}, [&] {
      Value count = k.min(rowsOfBlock, k.sub(rowsLeft, k.truncated(row)));
      k.loop(k.warp(), count, k.warps(), [&](Value r) {
        Value at = k.add(row, k.i64Of(r));
        View place = logits.row(at);
        Value dlossOfRow = k.load(dlosses.row(at)), lse = k.load(logSums + r);
        storeLossGradient(k, lines, place, targets.of(at), lse, dlossOfRow, place);
      });
    });
  }

  KernelBuilder &k;
  Op op;
  Value wide;
  Numbers numbers;
  std::optional<BufferIndex> dloss;
  RankedTensorType weight;
  const int64_t vocabulary, inner;
  const bool listed, kept, bf16;
  const int64_t kinds, room; // numbers per row, and their room in shared memory
  const LossTargets targets;
  PairAccess access, biasAccess;
  View logSums;
  Value row, rowsLeft; // the block's first row (i64), and the number of all rows (i32)
  // What each thread knows of its own rows.
  SmallVector<Value> rowNumbers, labelColumns;
  SmallVector<RowTarget> targetsOfRows;
};

} // namespace

static KernelInfo emitLinearLoss(KernelBuilder &k, LinearCrossEntropyOp op) {
  return LinearLoss(k, op, op.getLogits(),
                    {{op.getLoss(), &RowLoss::loss}, {op.getNll(), &RowLoss::nll}, {op.getLse(), &RowLoss::lse}},
                    std::nullopt)
      .emit();
}

static KernelInfo emitLinearLoss(KernelBuilder &k, LinearCrossEntropyWithGradOp op) {
  return LinearLoss(k, op, op.getDlogits(), {{op.getLoss(), &RowLoss::loss}, {op.getNll(), &RowLoss::nll}},
                    op.getDlossMutable())
      .emit();
}

namespace {

template <typename Op> struct LinearLossKernels : GPUKernelOpInterface::ExternalModel<LinearLossKernels<Op>, Op> {
  std::optional<KernelInfo> emitKernel(Operation *op, KernelBuilder &k) const {
    return emitLinearLoss(k, cast<Op>(op));
  }
  bool readsBlocks(Operation *op, const Architecture &architecture) const {
    return LinearLoss<Op>::byWarpgroups(architecture, cast<Op>(op));
  }
};

} // namespace

// The elements of a row of logits in shared memory, padded: rows of a fragment lie in different banks.
static int64_t candidatesLine(int64_t slab) { return slab + 8; }

// With few rows, the time is that of one block of threads, which waits for each block of K. So these are as deep as
// shared memory allows beside the logits, with two blocks of threads on a multiprocessor of an H100.
static TileShape candidatesTile(bool bf16, int64_t slab, int64_t inner) {
  constexpr int64_t room = 99 << 10, slots = 2;
  const int64_t least = bf16 ? 32 : 16;
  TileShape tile = bf16 && slab % 128 == 0 ? TileShape{32, 128, least, 32, 32} : TileShape{32, 64, least, 16, 32};
  auto bytes = [&](int64_t depth) {
    const int64_t line = ProductTile::lineBytes(bf16, depth, /*along=*/true);
    return slots * (tile.rows + tile.columns) * line + tile.rows * candidatesLine(slab) * 4;
  };
  while (tile.depth < inner && bytes(2 * tile.depth) <= room)
    tile.depth *= 2;
  return tile;
}

// A block has 32 rows of a slab of columns. Their logits stay in shared memory, where a warp takes one row at a time.
static KernelInfo emitLinearCandidates(KernelBuilder &k, LinearCandidatesOp op) {
  RankedTensorType weight = op.getWeight().getType();
  const int64_t inner = weight.getDimSize(1), vocabulary = weight.getDimSize(0), slab = op.getSlab(),
                slabs = op.getSlabs(), best = op.getCount();
  const bool bf16 = op.getCompute() == ComputeType::bf16;
  const TileShape tile = candidatesTile(bf16, slab, inner);
  k.threads = tile.threads();
  // For two blocks: in bf16, shared memory has room for no more. With 232, ptxas spills in f32.
  k.registers = 248;
  const int64_t lineElements = candidatesLine(slab);
  Value row = k.truncated(k.mul(k.div(k.chunk, slabs), tile.rows)), rows = k.truncated(k.rowCount());
  k.when(k.less(row, rows), [&] {
    const Operand matrix = weightOperand(k, op.getWeightMutable(), weight, bf16, /*along=*/true);
    ProductTile product(k, tile, bf16, rowsOperand(k, op.getXMutable(), inner, /*along=*/true), matrix);
    const View logits = k.at(k.shared(tile.rows * lineElements * 4));
    Value which = k.rem(k.chunk, slabs), first = k.truncated(k.mul(which, slab));
    const Value none = k.scalar(-INFINITY), end = k.i32Of(static_cast<int32_t>(vocabulary));
    PairAccess access(k, vocabulary);
    if (op.getBias())
      access.include(k.buffer(op.getBiasMutable()).inRows(0));
    k.loop(k.i32Of(0), slab, tile.columns, [&](Value column) {
      Value terms = k.i32Of(static_cast<int32_t>(inner));
      Values sums = product.multiply(row, k.add(first, column), terms);
      for (int64_t pair = 0; pair < product.pairsOfThread(); ++pair) {
        Value place = k.add(k.add(column, product.firstColumn()), 8 * pair), f = k.add(first, place);
        Values bias(2, k.scalar(0));
        if (op.getBias()) {
          const View all = k.buffer(op.getBiasMutable());
          bias = access.load(all, k.boolean(true), f, 1);
        }
        for (int64_t r = 0; r < product.rowsOfThread(); ++r) {
          Values x;
          for (int64_t i = 0; i < 2; ++i) {
            Value y = product.sum(sums, r, pair, i);
            if (op.getBias())
              y = k.addf(y, bias[i]);
            x.push_back(k.select(k.less(k.add(f, i), end), y, none));
          }
          k.store(x, logits + k.add(k.mul(k.add(product.firstRow(), 8 * r), lineElements), place));
        }
      }
    });
    k.barrier();

    RowsInMemory lines = RowsInMemory::ofWarp(k, slab);
    Candidates candidates(k, best);
    Value count = k.min(tile.rows, k.sub(rows, row));
    k.loop(k.warp(), count, k.warps(), [&](Value r) {
      Value at = k.i64Of(k.add(row, r));
      const View from = logits + k.mul(r, lineElements);
      Values list = lines.loop(from, candidates.none(), [&](Value f, const Values &x, Values s) {
        return candidates.with(std::move(s), x[0], k.add(first, f), op.getExcluded());
      });
      const SmallVector<Candidates::Candidate> found = candidates.best(lines, list);
      Value lse = lines.rowSums(from, op.getLeftOut(), first).lse;
      lines.once([&] {
        for (auto [i, candidate] : llvm::enumerate(found)) {
          Value place = k.add(k.mul(which, best), static_cast<int64_t>(i));
          if (!op.getTokens().use_empty())
            k.store(candidate.token, k.rowOf(op.getTokens(), at) + place);
          if (!op.getLargest().use_empty())
            k.store(candidate.number, k.rowOf(op.getLargest(), at) + place);
        }
        if (!op.getLse().use_empty())
          k.store(lse, k.rowOf(op.getLse(), at) + which);
        if (!op.getWantedLogit().use_empty()) {
          Value column = k.sub(k.truncated(k.loadIndex(k.buffer(op.getWantedMutable()) + at)), first),
                isBefore = k.less(column, slab);
          k.when(k.both(k.less(-1, column), isBefore), [&] {
            const View place = k.rowOf(op.getWantedLogit(), at);
            k.store(k.load(from + column), place);
          });
        }
      });
    });
  });
  return {{Partition::Unit::Rows, tile.rows, slabs}};
}

void attachLinearLossKernels(MLIRContext &context) {
  LinearCrossEntropyOp::attachInterface<LinearLossKernels<LinearCrossEntropyOp>>(context);
  LinearCrossEntropyWithGradOp::attachInterface<LinearLossKernels<LinearCrossEntropyWithGradOp>>(context);
  attachKernels<emitLinearCandidates>(context);
}

} // namespace xfc::gpu
