// Layer and rms norms of rows, alone or after a sum, and their gradients.
#include "Emitters.h"
#include "Rows.h"

using namespace mlir;

namespace xfc::gpu {
namespace {

// What divides a row: the attributes shared by all norm ops.
struct NormParts {
  template <typename Op>
  NormParts(Op op, int64_t width)
      : layer(op.getKind() == NormKind::layer), epsInStd(op.getEpsInStd()), eps(op.getEps().convertToDouble()),
        width(width), count(op.getUnbiased() ? width - 1 : width) {}
  bool layer, epsInStd;
  double eps;
  int64_t width;
  int64_t count; // that the sum of squares is divided by; 0: the variance is 0

  Value variance(KernelBuilder &k, Value squares) const {
    return count ? k.mulf(squares, k.scalar(1.0 / count)) : k.scalar(0);
  }
  Value reciprocal(KernelBuilder &k, Value variance) const {
    Value e = k.scalar(eps);
    return k.divf(k.scalar(1), epsInStd ? k.addf(k.sqrt(variance), e) : k.sqrt(k.addf(variance, e)));
  }
};

// The results of a norm of a row that is in registers.
struct Normed {
  Address result, stats;
  Value weight, bias; // bias may be null
  bool wantsResult, wantsStats;

  void write(KernelBuilder &k, RowInRegisters &row, const NormParts &parts, const Values &x, Value number) const {
    Value mean = parts.layer ? k.mulf(row.sum(x), k.scalar(1.0 / parts.width)) : k.scalar(0);
    Values c = x;
    if (parts.layer)
      c = row.each({x}, [&](ArrayRef<Value> xs) { return k.subf(xs[0], mean); }, /*masked=*/true);
    Value r = parts.reciprocal(
        k, parts.variance(k, row.sum(row.each({c}, [&](ArrayRef<Value> cs) { return k.mulf(cs[0], cs[0]); }))));
    if (wantsResult) {
      Values y = row.each({c, row.load(weight)}, [&](ArrayRef<Value> v) { return k.mulf(k.mulf(v[0], r), v[1]); });
      if (bias)
        y = row.each({y, row.load(bias)}, [&](ArrayRef<Value> v) { return k.addf(v[0], v[1]); });
      row.store(y, result.row(k, number));
    }
    if (wantsStats)
      row.once([&] {
        Value to = stats.row(k, number);
        k.store(mean, to);
        k.store(r, k.offset(to, 1));
      });
  }
};

} // namespace

Backend::KernelInfo emitNorm(KernelBuilder &k, NormOp op) {
  const NormParts parts(op, op.getX().getType().getFeatures());
  const int64_t results = op->getNumOperands();
  RowInRegisters row(k, parts.width);
  const Address x(k, 0);
  const Normed normed{{k, results},
                      {k, results + 1},
                      k.buffer(1),
                      op.getBias() ? k.buffer(2) : Value(),
                      !op.getResult().use_empty(),
                      !op.getStats().use_empty()};
  SmallVector<int64_t> vectors = {0, 1};
  if (normed.bias)
    vectors.push_back(2);
  if (normed.wantsResult)
    vectors.push_back(results);
  return {row.eachRow(vectors, [&](Value number) { normed.write(k, row, parts, row.load(x.row(k, number)), number); })};
}

Backend::KernelInfo emitAddNorm(KernelBuilder &k, AddNormOp op) {
  const NormParts parts(op, op.getX().getType().getFeatures());
  const int64_t results = op->getNumOperands();
  RowInRegisters row(k, parts.width);
  const Address x(k, 0), residual(k, 1), sum(k, results + 1);
  const Normed normed{{k, results},
                      {k, results + 2},
                      k.buffer(2),
                      op.getBias() ? k.buffer(3) : Value(),
                      !op.getResult().use_empty(),
                      !op.getStats().use_empty()};
  const bool keep = !op.getSum().use_empty();
  SmallVector<int64_t> vectors = {0, 1, 2};
  if (normed.bias)
    vectors.push_back(3);
  if (normed.wantsResult)
    vectors.push_back(results);
  if (keep)
    vectors.push_back(results + 1);
  return {row.eachRow(vectors, [&](Value number) {
    Values s = row.each({row.load(x.row(k, number)), row.load(residual.row(k, number))},
                        [&](ArrayRef<Value> v) { return k.addf(v[0], v[1]); });
    if (keep)
      row.store(s, sum.row(k, number));
    normed.write(k, row, parts, s, number);
  })};
}

namespace {

// dx of rows of norm_grad, and of norm_grad_with_parts.
template <typename Op> struct NormGradRows {
  KernelBuilder &k;
  NormParts parts;
  RowInRegisters row;
  Address dy, x, stats, dx;
  std::optional<Address> addend;
  Value weight;
  const bool wanted;
  SmallVector<int64_t> vectors; // the buffers whose rows it has to do with

  NormGradRows(KernelBuilder &k, Op op)
      : k(k), parts(op, op.getX().getType().getFeatures()), row(k, parts.width), dy(k, 0), x(k, 1), stats(k, 3),
        dx(k, op->getNumOperands()), weight(k.buffer(2)), wanted(!op.getResult().use_empty()), vectors({0, 1, 2}) {
    if (wanted)
      vectors.push_back(op->getNumOperands());
    if (op.getAddend()) {
      addend.emplace(k, 4);
      vectors.push_back(4);
    }
  }

  // Inside of row.vectorized. `beside` gets dy and (x - mean) r of this thread's features.
  void emit(Value number, const std::function<void(const Values &dy, const Values &normed)> &beside = {}) {
    Value statsRow = stats.row(k, number), mean = k.load(statsRow), r = k.load(k.offset(statsRow, 1));
    auto product = [&](ArrayRef<Value> v) { return k.mulf(v[0], v[1]); };
    const Values dyRow = row.load(dy.row(k, number));
    Values g = row.each({dyRow, row.load(weight)}, product), c = row.load(x.row(k, number));
    if (parts.layer)
      c = row.each({c}, [&](ArrayRef<Value> v) { return k.subf(v[0], mean); }, /*masked=*/true);
    if (beside)
      beside(dyRow, row.each({c}, [&](ArrayRef<Value> v) { return k.mulf(v[0], r); }));
    if (!wanted)
      return;
    Value slope = k.scalar(0);
    if (parts.count) {
      Value factor;
      if (parts.epsInStd) {
        Value std = k.sqrt(parts.variance(k, row.sum(row.each({c, c}, product)))), positive = k.lessf(k.scalar(0), std);
        Value quotient =
            k.divf(k.mulf(k.mulf(r, r), k.scalar(1.0 / parts.count)), k.select(positive, std, k.scalar(1)));
        factor = k.select(positive, quotient, k.scalar(0));
      } else {
        factor = k.mulf(k.mulf(r, r), k.mulf(r, k.scalar(1.0 / parts.count)));
      }
      slope = k.mulf(factor, row.sum(row.each({g, c}, product)));
    }
    if (parts.layer) {
      Value gMean = k.mulf(row.sum(g), k.scalar(1.0 / parts.width));
      g = row.each({g}, [&](ArrayRef<Value> v) { return k.subf(v[0], gMean); });
    }
    Values d = row.each({g, c}, [&](ArrayRef<Value> v) { return k.subf(k.mulf(r, v[0]), k.mulf(slope, v[1])); });
    if (addend)
      d = row.each({d, row.load(addend->row(k, number))}, [&](ArrayRef<Value> v) { return k.addf(v[0], v[1]); });
    row.store(d, dx.row(k, number));
  }
};

} // namespace

Backend::KernelInfo emitNormGrad(KernelBuilder &k, NormGradOp op) {
  NormGradRows rows(k, op);
  return {rows.row.eachRow(rows.vectors, [&](Value number) { rows.emit(number); })};
}

// A block is a part. Each of its warps (or, where rows are long, the block) sums rows in ascending order, in registers;
// warps are added up in theirs.
Backend::KernelInfo emitNormGradWithParts(KernelBuilder &k, NormGradWithPartsOp op) {
  NormGradRows rows(k, op);
  RowInRegisters &row = rows.row;
  const int64_t parts = op.getDweights().getType().getDimSize(0), width = rows.parts.width;
  SmallVector<int64_t, 2> sums; // the buffers of those that are wanted
  const bool wantsWeights = !op.getDweights().use_empty();
  for (Value result : {Value(op.getDweights()), Value(op.getDbiases())})
    if (result && !result.use_empty())
      sums.push_back(op->getNumOperands() + cast<OpResult>(result).getResultNumber());
  SmallVector<int64_t> vectors = rows.vectors;
  vectors.append(sums.begin(), sums.end());
  auto begin = [&](Value part) { return k.div(k.mul(part, k.rowCount()), parts); };
  row.vectorized(vectors, [&] {
    const int64_t each = row.load(rows.weight).size();
    Values totals = row.someRows(begin(k.chunk), begin(k.add(k.chunk, 1)), Values(each * sums.size(), k.scalar(0)),
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
    for (auto [i, sum] : llvm::enumerate(sums))
      row.storeSum(ArrayRef<Value>(totals).slice(i * each, each), k.offset(k.buffer(sum), k.mul(k.chunk, width)));
  });
  return {{Partition::Unit::One, 1, parts}};
}

// A block owns 8 columns, 32 bytes of each part, of all sums. All threads fetch, and one a column adds the parts in
// ascending order.
Backend::KernelInfo emitSumParts(KernelBuilder &k, SumPartsOp op) {
  constexpr int64_t columns = 8, together = 512; // parts in shared memory at once
  auto type = cast<RankedTensorType>(op.getParts().front().getType());
  const int64_t parts = type.getDimSize(0), width = type.getDimSize(1), chunks = (width + columns - 1) / columns;
  SmallVector<int64_t> wanted;
  for (OpResult result : op.getSums())
    if (!result.use_empty())
      wanted.push_back(result.getResultNumber());
  const int64_t sums = wanted.size(), room = std::min(parts, together);
  Value shared = k.shared(sums * room * columns * k.bytes());
  Value number = k.rem(k.thread(), columns), own = k.div(k.thread(), columns),
        column = k.add(k.mul(k.chunk, columns), k.i64Of(number)), within = k.less(column, k.index(width));
  // This thread's column of the sum number `own`, if there are as many.
  auto place = [&](Value sum, Value part) {
    return k.offset(shared, k.add(k.mul(k.add(k.mul(sum, room), part), columns), number));
  };
  Value adds = k.both(within, k.less(k.thread(), k.i32Of(static_cast<int32_t>(sums * columns))));
  Value total = k.scalar(0);
  const int64_t step = k.threads / columns;
  for (int64_t first = 0; first < parts; first += together) {
    const int64_t count = std::min(parts - first, together);
    for (int64_t s = 0; s < sums; ++s) {
      Values loaded;
      auto part = [&](int64_t i) { return k.add(own, i); };
      auto isPart = [&](int64_t i) { return k.less(part(i), k.i32Of(static_cast<int32_t>(count))); };
      for (int64_t i = 0; i < count; i += step)
        loaded.push_back(
            k.loadIf(k.both(within, isPart(i)),
                     k.offset(k.buffer(wanted[s]), k.add(k.mul(k.i64Of(k.add(part(i), first)), width), column)), 1)[0]);
      for (int64_t i = 0; i < count; i += step)
        k.when(isPart(i), [&] { k.store(loaded[i / step], place(k.i32Of(static_cast<int32_t>(s)), part(i))); });
    }
    k.barrier();
    total = k.choose(
        adds,
        [&] {
          return k.loop(k.i32Of(0), k.i32Of(static_cast<int32_t>(count)), 1, {total},
                        [&](Value part, Values s) -> Values { return {k.addf(s[0], k.load(place(own, part)))}; });
        },
        [&] { return Values{total}; })[0];
    k.barrier();
  }
  for (int64_t s = 0; s < sums; ++s)
    k.when(k.both(adds, k.equal(own, k.i32Of(static_cast<int32_t>(s)))),
           [&] { k.store(total, k.offset(k.buffer(op->getNumOperands() + wanted[s]), column)); });
  return {{Partition::Unit::One, 1, chunks}};
}

// A block owns 8 columns, 32 bytes of each row. Row i belongs to a thread by i modulo the rows a block takes at once,
// each of which sums its own in order; a fixed tree adds them up.
Backend::KernelInfo emitNormWeightGrad(KernelBuilder &k, NormWeightGradOp op) {
  constexpr int64_t columns = 8;
  const int64_t width = op.getX().getType().getFeatures(), chunks = (width + columns - 1) / columns;
  const bool wantsWeight = !op.getDweight().use_empty(), wantsBias = op.getDbias() && !op.getDbias().use_empty();
  k.threads = 1024;
  const Address dy(k, 0), x(k, 1), stats(k, 2);
  Value parts = k.shared(k.warps() * columns * 2 * k.bytes());
  k.vectorized({0, 1}, width, [&](int64_t n) {
    const int64_t across = columns / n, together = k.threads / across;
    Value f = k.mul(k.bitAnd(k.thread(), across - 1), n), column = k.add(k.mul(k.chunk, columns), k.i64Of(f));
    Value within = k.less(column, k.index(width));
    Values sums = k.choose(
        within,
        [&] {
          return k.loop(k.i64Of(k.div(k.thread(), across)), k.rowCount(), together, Values(2 * n, k.scalar(0)),
                        [&](Value i, Values s) {
                          Value statsRow = stats.row(k, i), mean = k.load(statsRow), r = k.load(k.offset(statsRow, 1));
                          Values d = k.load(k.offset(dy.row(k, i), column), n),
                                 v = k.load(k.offset(x.row(k, i), column), n);
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
    k.when(k.less(k.lane(), k.i32Of(static_cast<int32_t>(across))), [&] {
      for (int64_t j = 0; j < 2 * n; ++j)
        k.store(sums[j], k.offset(parts, k.add(k.add(k.mul(k.warp(), 2 * columns), f), j < n ? j : columns + j - n)));
    });
  });
  k.barrier();
  // One thread a column, of dw and then of db.
  Value number = k.rem(k.thread(), columns), column = k.add(k.mul(k.chunk, columns), k.i64Of(number));
  k.when(k.both(k.less(k.thread(), k.i32Of(2 * columns)), k.less(column, k.index(width))), [&] {
    Value total = k.loop(k.i32Of(0), k.i32Of(static_cast<int32_t>(k.warps())), 1, {k.scalar(0)},
                         [&](Value warp, Values s) -> Values {
                           return {k.addf(s[0], k.load(k.offset(parts, k.add(k.mul(warp, 2 * columns), k.thread()))))};
                         })[0];
    Value ofWeight = k.less(k.thread(), k.i32Of(columns));
    if (wantsWeight)
      k.when(ofWeight, [&] { k.store(total, k.offset(k.buffer(3), column)); });
    if (wantsBias)
      k.when(k.less(k.i32Of(columns - 1), k.thread()), [&] { k.store(total, k.offset(k.buffer(4), column)); });
  });
  return {{Partition::Unit::One, 1, chunks}};
}

} // namespace xfc::gpu
