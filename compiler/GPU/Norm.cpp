// Layer and rms norms of rows, alone or after a sum, and their gradients.
#include "Codegen/Norm.h"
#include "Emitters.h"
#include "Rows.h"

using namespace mlir;

namespace xfc::gpu {
namespace {

// Writes the results of the norm of a row that is in registers.
struct Normed {
  View result, stats, weight, bias; // there may be no bias
  bool wantsResult, wantsStats;

  void write(KernelBuilder &k, RowInRegisters &row, const NormFormulas &parts, const Values &x, Value number) const {
    Value mean = parts.layer ? parts.mean(k, row.sum(x)) : k.scalar(0);
    Values c = x;
    if (parts.layer)
      c = row.each({x}, [&](ArrayRef<Value> xs) { return k.subf(xs[0], mean); }, /*masked=*/true);
    Value r = parts.reciprocal(
        k, parts.variance(k, row.sum(row.each({c}, [&](ArrayRef<Value> cs) { return k.mulf(cs[0], cs[0]); }))));
    if (wantsResult) {
      SmallVector<Values> operands = {c, row.load(weight)};
      if (bias)
        operands.push_back(row.load(bias));
      Values y =
          row.each(operands, [&](ArrayRef<Value> v) { return parts.result(k, v[0], r, v[1], bias ? v[2] : Value()); });
      row.store(y, result.row(number));
    }
    if (wantsStats)
      row.once([&] {
        View to = stats.row(number);
        k.store(mean, to);
        k.store(r, to + 1);
      });
  }
};

} // namespace

static KernelInfo emitNorm(KernelBuilder &k, NormOp op) {
  const NormFormulas parts(op, op.getX().getType().getFeatures());
  RowInRegisters row(k, parts.width);
  const View x = k.rowsOf(op.getXMutable());
  const Normed normed{k.rowsOf(op.getResult()),        k.rowsOf(op.getStats()),
                      k.buffer(op.getWeightMutable()), op.getBias() ? k.buffer(op.getBiasMutable()) : View(),
                      !op.getResult().use_empty(),     !op.getStats().use_empty()};
  SmallVector<BufferIndex> vectors = {op.getXMutable(), op.getWeightMutable()};
  if (normed.bias)
    vectors.push_back(op.getBiasMutable());
  if (normed.wantsResult)
    vectors.push_back(op.getResult());
  return {row.eachRow(vectors, [&](Value number) { normed.write(k, row, parts, row.load(x.row(number)), number); })};
}

static KernelInfo emitAddNorm(KernelBuilder &k, AddNormOp op) {
  const NormFormulas parts(op, op.getX().getType().getFeatures());
  RowInRegisters row(k, parts.width);
  const View x = k.rowsOf(op.getXMutable()), residual = k.rowsOf(op.getResidualMutable()), sum = k.rowsOf(op.getSum());
  const Normed normed{k.rowsOf(op.getResult()),        k.rowsOf(op.getStats()),
                      k.buffer(op.getWeightMutable()), op.getBias() ? k.buffer(op.getBiasMutable()) : View(),
                      !op.getResult().use_empty(),     !op.getStats().use_empty()};
  const bool keep = !op.getSum().use_empty();
  SmallVector<BufferIndex> vectors = {op.getXMutable(), op.getResidualMutable(), op.getWeightMutable()};
  if (normed.bias)
    vectors.push_back(op.getBiasMutable());
  if (normed.wantsResult)
    vectors.push_back(op.getResult());
  if (keep)
    vectors.push_back(op.getSum());
  return {row.eachRow(vectors, [&](Value number) {
    Values s = row.each({row.load(x.row(number)), row.load(residual.row(number))},
                        [&](ArrayRef<Value> v) { return k.addf(v[0], v[1]); });
    if (keep)
      row.store(s, sum.row(number));
    normed.write(k, row, parts, s, number);
  })};
}

namespace {

// Computes dx row by row, for norm_grad and norm_grad_with_parts.
template <typename Op> struct NormGradRows {
  KernelBuilder &k;
  NormFormulas parts;
  RowInRegisters row;
  View dy, x, stats, dx, addend, weight;
  const bool wanted;
  SmallVector<BufferIndex> vectors; // the buffers accessed with vectors

  NormGradRows(KernelBuilder &k, Op op)
      : k(k), parts(op, op.getX().getType().getFeatures()), row(k, parts.width), dy(k.rowsOf(op.getDyMutable())),
        x(k.rowsOf(op.getXMutable())), stats(k.rowsOf(op.getStatsMutable())), dx(k.rowsOf(op.getResult())),
        weight(k.buffer(op.getWeightMutable())), wanted(!op.getResult().use_empty()),
        vectors({op.getDyMutable(), op.getXMutable(), op.getWeightMutable()}) {
    if (wanted)
      vectors.push_back(op.getResult());
    if (op.getAddend()) {
      addend = k.rowsOf(op.getAddendMutable());
      vectors.push_back(op.getAddendMutable());
    }
  }

  // To be called inside row.vectorized. `beside` gets dy and (x - mean) r of this thread's features.
  void emit(Value number, const std::function<void(const Values &dy, const Values &normed)> &beside = {}) {
    View statsRow = stats.row(number);
    Value mean = k.load(statsRow), r = k.load(statsRow + 1);
    auto product = [&](ArrayRef<Value> v) { return k.mulf(v[0], v[1]); };
    const Values dyRow = row.load(dy.row(number));
    Values g = row.each({dyRow, row.load(weight)}, product), c = row.load(x.row(number));
    if (parts.layer)
      c = row.each({c}, [&](ArrayRef<Value> v) { return k.subf(v[0], mean); }, /*masked=*/true);
    if (beside)
      beside(dyRow, row.each({c}, [&](ArrayRef<Value> v) { return k.mulf(v[0], r); }));
    if (!wanted)
      return;
    Value slope = k.scalar(0);
    if (parts.count) {
      Value factor = parts.slopeFactor(k, r, [&] { return row.sum(row.each({c, c}, product)); });
      slope = k.mulf(factor, row.sum(row.each({g, c}, product)));
    }
    if (parts.layer) {
      Value gMean = parts.mean(k, row.sum(g));
      g = row.each({g}, [&](ArrayRef<Value> v) { return k.subf(v[0], gMean); });
    }
    Values d = row.each({g, c}, [&](ArrayRef<Value> v) { return parts.inputGrad(k, r, v[0], slope, v[1]); });
    if (addend)
      d = row.each({d, row.load(addend.row(number))}, [&](ArrayRef<Value> v) { return k.addf(v[0], v[1]); });
    row.store(d, dx.row(number));
  }
};

} // namespace

static KernelInfo emitNormGrad(KernelBuilder &k, NormGradOp op) {
  NormGradRows rows(k, op);
  return {rows.row.eachRow(rows.vectors, [&](Value number) { rows.emit(number); })};
}

// A block computes one part. Each of its warps (or the whole block, if rows are long) sums rows in ascending order in
// registers; then the sums of the warps are added in the order of the warps.
static KernelInfo emitNormGradWithParts(KernelBuilder &k, NormGradWithPartsOp op) {
  NormGradRows rows(k, op);
  RowInRegisters &row = rows.row;
  const int64_t parts = op.getDweights().getType().getDimSize(0), width = rows.parts.width;
  SmallVector<BufferIndex, 2> sums; // the buffers of the sums that are wanted
  const bool wantsWeights = !op.getDweights().use_empty();
  for (Value result : {Value(op.getDweights()), Value(op.getDbiases())})
    if (result && !result.use_empty())
      sums.push_back(result);
  SmallVector<BufferIndex> vectors = rows.vectors;
  vectors.append(sums.begin(), sums.end());
  auto begin = [&](Value part) { return k.div(k.mul(part, k.rowCount()), parts); };
  row.vectorized(vectors, [&] {
    const int64_t each = row.load(rows.weight).size();
    const Values none(each * sums.size(), k.scalar(0));
    Value end = begin(k.add(k.chunk, 1));
    Values totals = row.someRows(begin(k.chunk), end, none,

                                 [&](Value number, Values s) {
                                   rows.emit(number, [&](const Values &dy, const Values &normed) {
                                     for (int64_t i = 0; i < each; ++i) {
                                       if (wantsWeights)
                                         s[i] = k.fma(dy[i], normed[i], s[i]);
                                       if (sums.size() > wantsWeights)
                                         s[s.size() - each + i] = k.addf(s[s.size() - each + i], dy[i]);
                                     }
                                   });
                                   return s;
                                 });
    for (auto [i, sum] : llvm::enumerate(sums)) {
      Value before = k.mul(k.chunk, width);
      row.storeSum(ArrayRef<Value>(totals).slice(i * each, each), k.buffer(sum) + before);
    }
  });
  return {{Partition::Unit::One, 1, parts}};
}

// A block owns 8 columns (32 bytes of each part) of all sums. A thread adds up every 32nd part of its column, and one
// thread per column of a sum adds up what those threads have, both in ascending order.
static KernelInfo emitSumParts(KernelBuilder &k, SumPartsOp op) {
  constexpr int64_t columns = 8, together = 16; // loads in flight
  auto type = cast<RankedTensorType>(op.getParts().front().getType());
  const int64_t parts = type.getDimSize(0), width = type.getDimSize(1), chunks = (width + columns - 1) / columns;
  SmallVector<OpResult> wanted;
  for (OpResult result : op.getSums())
    if (!result.use_empty())
      wanted.push_back(result);
  const int64_t sums = wanted.size(), step = k.threads / columns;
  View shared = k.at(k.shared(sums * step * columns * k.bytes()));
  Value number = k.rem(k.thread(), columns), own = k.div(k.thread(), columns), ofThread = k.i64Of(number),
        column = k.add(k.mul(k.chunk, columns), ofThread), within = k.less(column, width);
  // The place in shared memory of a thread's share of a sum.
  auto place = [&](Value sum, Value share) {
    return shared + k.add(k.mul(k.add(k.mul(sum, step), share), columns), number);
  };
  for (int64_t s = 0; s < sums; ++s) {
    const View partials = k.buffer(op->getOpOperand(wanted[s].getResultNumber())) + column;
    Value total = k.scalar(0);
    for (int64_t first = 0; first < parts; first += step * together) {
      Values loaded;
      for (int64_t i = first; i < std::min(parts, first + step * together); i += step) {
        Value part = k.add(own, i), isPart = k.both(within, k.less(part, parts));
        loaded.push_back(k.loadIf(isPart, partials + k.mul(k.i64Of(part), width), 1)[0]);
      }
      for (Value x : loaded)
        total = k.addf(total, x);
    }
    const View to = place(k.i32Of(static_cast<int32_t>(s)), own);
    k.store(total, to);
  }
  k.barrier();
  k.when(k.both(within, k.less(k.thread(), sums * columns)), [&] {
    Value none = k.scalar(0);
    Values total = k.loop(k.i32Of(0), step, 1, {none},
                          [&](Value share, Values s) -> Values { return {k.addf(s[0], k.load(place(own, share)))}; });
    for (int64_t s = 0; s < sums; ++s)
      k.when(k.equal(own, s), [&] { k.store(total[0], k.buffer(wanted[s]) + column); });
  });
  return {{Partition::Unit::One, 1, chunks}};
}

// A block owns 8 columns (32 bytes of each row). A thread takes rows at a fixed stride, the number of rows that the
// block takes at once, and sums them in order. Lanes are then added in a fixed tree, and warps in order.
static KernelInfo emitNormWeightGrad(KernelBuilder &k, NormWeightGradOp op) {
  constexpr int64_t columns = 8;
  const int64_t width = op.getX().getType().getFeatures(), chunks = (width + columns - 1) / columns;
  const bool wantsWeight = !op.getDweight().use_empty(), wantsBias = op.getDbias() && !op.getDbias().use_empty();
  k.threads = 1024;
  const View dy = k.rowsOf(op.getDyMutable()), x = k.rowsOf(op.getXMutable()), stats = k.rowsOf(op.getStatsMutable());
  View parts = k.at(k.shared(k.warps() * columns * 2 * k.bytes()));
  k.vectorized({op.getDyMutable(), op.getXMutable()}, width, [&](int64_t n) {
    const int64_t across = columns / n, together = k.threads / across;
    Value f = k.mul(k.bitAnd(k.thread(), across - 1), n), ofThread = k.i64Of(f),
          column = k.add(k.mul(k.chunk, columns), ofThread);
    Value within = k.less(column, width);
    Values sums = k.choose(
        within,
        [&] {
          const Values none(2 * n, k.scalar(0));
          Value rows = k.rowCount();
          return k.loop(k.i64Of(k.div(k.thread(), across)), rows, together, none,

                        [&](Value i, Values s) {
                          View statsRow = stats.row(i);
                          Value mean = k.load(statsRow), r = k.load(statsRow + 1);
                          Values d = k.load(dy.row(i) + column, n), v = k.load(x.row(i) + column, n);
                          for (int64_t j = 0; j < n; ++j) {
                            s[j] = k.fma(d[j], k.mulf(k.subf(v[j], mean), r), s[j]);
                            s[n + j] = k.addf(s[n + j], d[j]);
                          }
                          return s;
                        });
        },
        [&] { return Values(2 * n, k.scalar(0)); });
    // Lanes that have the same columns are `across` apart.
    for (Value &sum : sums)
      for (int64_t mask = KernelBuilder::warpSize / 2; mask >= across; mask /= 2)
        sum = k.addf(sum, k.shuffleXor(sum, mask));
    k.when(k.less(k.lane(), across), [&] {
      for (int64_t j = 0; j < 2 * n; ++j)
        k.store(sums[j], parts + k.add(k.add(k.mul(k.warp(), 2 * columns), f), j < n ? j : columns + j - n));
    });
  });
  k.barrier();
  // One thread per column of dw, then of db.
  Value number = k.rem(k.thread(), columns), ofThread = k.i64Of(number),
        column = k.add(k.mul(k.chunk, columns), ofThread), isColumn = k.less(column, width);
  k.when(k.both(k.less(k.thread(), 2 * columns), isColumn), [&] {
    Value zero = k.scalar(0), total = k.loop(k.i32Of(0), k.warps(), 1, {zero}, [&](Value warp, Values s) -> Values {
      Value own = k.thread();
      return {k.addf(s[0], k.load(parts + k.add(k.mul(warp, 2 * columns), own)))};
    })[0];
    Value ofWeight = k.less(k.thread(), columns);
    if (wantsWeight)
      k.when(ofWeight, [&] { k.store(total, k.buffer(op.getDweight()) + column); });
    if (wantsBias)
      k.when(k.less(columns - 1, k.thread()), [&] { k.store(total, k.buffer(op.getDbias()) + column); });
  });
  return {{Partition::Unit::One, 1, chunks}};
}

void attachNormKernels(MLIRContext &context) {
  attachKernels<emitNorm, emitAddNorm, emitNormGrad, emitNormGradWithParts, emitNormWeightGrad, emitSumParts>(context);
}

} // namespace xfc::gpu
