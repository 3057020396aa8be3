// Layer and rms norms of rows, alone or after a sum, and their gradients.
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace xfc {
namespace {

// What divides a row: the attributes shared by all norm ops.
struct NormParts {
  template <typename Op>
  explicit NormParts(Op op, int64_t width)
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

// Lanes beyond the row's end as 0.
Value tail(KernelBuilder &k, Value x, int64_t used) {
  if (used == k.lanes())
    return x;
  SmallVector<bool> lanes(k.lanes());
  std::fill_n(lanes.begin(), used, true);
  auto type = VectorType::get({k.lanes()}, k.i1);
  return k.select(arith::ConstantOp::create(k.b, DenseElementsAttr::get(type, ArrayRef<bool>(lanes))), x, k.splat(0));
}

// Sums over a row, in four independent chains while it is long enough: body gives a vector for (offset, lanes used).
SmallVector<Value> rowSums(KernelBuilder &k, int64_t width, int64_t sums,
                           const std::function<SmallVector<Value>(Value, int64_t)> &body) {
  const int64_t lanes = k.lanes(), chains = 4, whole = width / (chains * lanes) * chains * lanes;
  Values state(chains * sums, k.splat(0));
  auto accumulate = [&](Values &s, int64_t chain, Value f, int64_t used) {
    for (auto [i, x] : llvm::enumerate(body(f, used)))
      s[chain * sums + i] = k.addf(s[chain * sums + i], x);
  };
  if (whole)
    state = k.loop(k.index(0), k.index(whole), chains * lanes, state, [&](Value f, Values s) {
      for (int64_t c = 0; c < chains; ++c)
        accumulate(s, c, k.add(f, c * lanes), lanes);
      return s;
    });
  for (int64_t f = whole, c = 0; f < width; f += lanes, ++c)
    accumulate(state, c, k.index(f), std::min(lanes, width - f));
  SmallVector<Value> results;
  for (int64_t i = 0; i < sums; ++i)
    results.push_back(
        k.sum(k.addf(k.addf(state[i], state[sums + i]), k.addf(state[2 * sums + i], state[3 * sums + i]))));
  return results;
}

// Mean and r of a row that `at` reads; two passes over it while it is in the first cache.
std::pair<Value, Value> statistics(KernelBuilder &k, const NormParts &parts,
                                   const std::function<Value(Value, int64_t)> &at) {
  Value mean = k.scalar(0);
  if (parts.layer)
    mean = k.mulf(rowSums(k, parts.width, 1,
                          [&](Value f, int64_t used) { return SmallVector<Value>{tail(k, at(f, used), used)}; })[0],
                  k.scalar(1.0 / parts.width));
  Value means = k.broadcast(mean);
  Value squares = rowSums(k, parts.width, 1, [&](Value f, int64_t used) {
    Value c = tail(k, parts.layer ? k.subf(at(f, used), means) : at(f, used), used);
    return SmallVector<Value>{k.mulf(c, c)};
  })[0];
  return {mean, parts.reciprocal(k, parts.variance(k, squares))};
}

struct Address {
  Value data, stride;
  Address(KernelBuilder &k, int64_t buffer) : data(k.buffer(buffer)), stride(k.stride(buffer)) {}
  Value row(KernelBuilder &k, Value i) const { return k.offset(data, k.mul(i, stride)); }
};

// y = w (x - mean) r + b for one row.
void writeNorm(KernelBuilder &k, const NormParts &parts, Value mean, Value r, Value weight, Value bias, Value to,
               const std::function<Value(Value, int64_t)> &at) {
  Value means = k.broadcast(mean), rs = k.broadcast(r);
  k.features(parts.width, [&](Value f, int64_t used) {
    Value c = parts.layer ? k.subf(at(f, used), means) : at(f, used);
    Value y = k.mulf(k.mulf(c, rs), k.load(k.offset(weight, f), k.lanes()));
    if (bias)
      y = k.addf(y, k.load(k.offset(bias, f), k.lanes()));
    k.storePart(y, k.offset(to, f), used);
  });
}

void writeStats(KernelBuilder &k, Value to, Value mean, Value r) {
  k.store(mean, to);
  k.store(r, k.offset(to, 1));
}

} // namespace

Backend::KernelInfo emitNorm(KernelBuilder &k, NormOp op) {
  NormParts parts(op, op.getX().getType().getFeatures());
  const int64_t per = rowsPerChunk(parts.width), results = op->getNumOperands();
  Address x(k, 0), y(k, results), stats(k, results + 1);
  Value weight = k.buffer(1), bias = op.getBias() ? k.buffer(2) : Value();
  k.eachRow(per, [&](Value row) {
    Value from = x.row(k, row);
    auto at = [&](Value f, int64_t) { return k.load(k.offset(from, f), k.lanes()); };
    auto [mean, r] = statistics(k, parts, at);
    if (!op.getResult().use_empty())
      writeNorm(k, parts, mean, r, weight, bias, y.row(k, row), at);
    if (!op.getStats().use_empty())
      writeStats(k, stats.row(k, row), mean, r);
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

Backend::KernelInfo emitAddNorm(KernelBuilder &k, AddNormOp op) {
  NormParts parts(op, op.getX().getType().getFeatures());
  const int64_t per = rowsPerChunk(parts.width), results = op->getNumOperands();
  Address x(k, 0), residual(k, 1), y(k, results), sum(k, results + 1), stats(k, results + 2);
  Value weight = k.buffer(2), bias = op.getBias() ? k.buffer(3) : Value();
  const bool keep = !op.getSum().use_empty();
  k.eachRow(per, [&](Value row) {
    Value from = x.row(k, row), other = residual.row(k, row);
    // A sum that nobody wants stays in scratch.
    Value to = keep ? sum.row(k, row) : k.scratch;
    k.features(parts.width, [&](Value f, int64_t used) {
      Value s = k.addf(k.load(k.offset(from, f), k.lanes()), k.load(k.offset(other, f), k.lanes()));
      k.storePart(s, k.offset(to, f), used);
    });
    auto at = [&](Value f, int64_t) { return k.load(k.offset(to, f), k.lanes()); };
    auto [mean, r] = statistics(k, parts, at);
    if (!op.getResult().use_empty())
      writeNorm(k, parts, mean, r, weight, bias, y.row(k, row), at);
    if (!op.getStats().use_empty())
      writeStats(k, stats.row(k, row), mean, r);
  });
  return {{Partition::Unit::Rows, per, 1}, keep ? 0 : (parts.width + 64) * k.bytes()};
}

namespace {

// dx of rows of norm_grad, and of norm_grad_with_parts.
template <typename Op> struct NormGradRows {
  KernelBuilder &k;
  NormParts parts;
  Address dy, x, stats, dx;
  std::optional<Address> addend;
  Value weight;
  const bool wanted;

  NormGradRows(KernelBuilder &k, Op op)
      : k(k), parts(op, op.getX().getType().getFeatures()), dy(k, 0), x(k, 1), stats(k, 3), dx(k, op->getNumOperands()),
        weight(k.buffer(2)), wanted(!op.getResult().use_empty()) {
    if (op.getAddend())
      addend.emplace(k, 4);
  }

  // `beside` gets dy and (x - mean) r of each vector: its first feature, and how many are used.
  void emit(Value row, const std::function<void(Value f, int64_t used, Value dy, Value normed)> &beside = {}) const {
    const int64_t n = parts.width, lanes = k.lanes();
    Value dyRow = dy.row(k, row), xRow = x.row(k, row), statsRow = stats.row(k, row), to = dx.row(k, row);
    Value mean = k.load(statsRow), r = k.load(k.offset(statsRow, 1)), means = k.broadcast(mean);
    auto dyAt = [&](Value f) { return k.load(k.offset(dyRow, f), lanes); };
    auto gAt = [&](Value f, Value dy) { return k.mulf(dy, k.load(k.offset(weight, f), lanes)); };
    auto cAt = [&](Value f) {
      Value v = k.load(k.offset(xRow, f), lanes);
      return parts.layer ? k.subf(v, means) : v;
    };
    // The sums of g, g c and, where k needs the standard deviation itself, c^2.
    SmallVector<Value> sums = rowSums(k, n, parts.epsInStd ? 3 : 2, [&](Value f, int64_t used) {
      Value g = tail(k, gAt(f, dyAt(f)), used), c = tail(k, cAt(f), used);
      SmallVector<Value> terms{g, k.mulf(g, c)};
      if (parts.epsInStd)
        terms.push_back(k.mulf(c, c));
      return terms;
    });
    Value factor = k.scalar(0);
    if (parts.count) {
      if (parts.epsInStd) {
        Value std = k.sqrt(parts.variance(k, sums[2])), positive = k.lessf(k.scalar(0), std);
        Value quotient =
            k.divf(k.mulf(k.mulf(r, r), k.scalar(1.0 / parts.count)), k.select(positive, std, k.scalar(1)));
        factor = k.select(positive, quotient, k.scalar(0));
      } else {
        factor = k.mulf(k.mulf(r, r), k.mulf(r, k.scalar(1.0 / parts.count)));
      }
    }
    Value slope = k.broadcast(k.mulf(factor, sums[1])), rs = k.broadcast(r);
    Value gMean = k.broadcast(parts.layer ? k.mulf(sums[0], k.scalar(1.0 / n)) : k.scalar(0));
    Value addendRow = addend ? addend->row(k, row) : Value();
    k.features(n, [&](Value f, int64_t used) {
      Value dyF = dyAt(f), c = cAt(f), g = parts.layer ? k.subf(gAt(f, dyF), gMean) : gAt(f, dyF);
      Value d = k.subf(k.mulf(rs, g), k.mulf(slope, c));
      if (addendRow)
        d = k.addf(d, k.load(k.offset(addendRow, f), lanes));
      if (beside)
        beside(f, used, dyF, k.mulf(c, rs));
      if (wanted)
        k.storePart(d, k.offset(to, f), used);
    });
  }
};

} // namespace

Backend::KernelInfo emitNormGrad(KernelBuilder &k, NormGradOp op) {
  NormGradRows rows(k, op);
  const int64_t per = rowsPerChunk(rows.parts.width);
  k.eachRow(per, [&](Value row) { rows.emit(row); });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

// A chunk is a part, whose sums stay in the first cache.
Backend::KernelInfo emitNormGradWithParts(KernelBuilder &k, NormGradWithPartsOp op) {
  NormGradRows rows(k, op);
  const int64_t parts = op.getDweights().getType().getDimSize(0), width = rows.parts.width, lanes = k.lanes();
  SmallVector<Value> sums; // of dy times what is normed, and of dy
  for (Value result : {Value(op.getDweights()), Value(op.getDbiases())})
    sums.push_back(
        result && !result.use_empty()
            ? k.offset(k.buffer(op->getNumOperands() + cast<OpResult>(result).getResultNumber()), k.mul(k.chunk, width))
            : Value());
  k.features(width, [&](Value f, int64_t used) {
    for (Value sum : sums)
      if (sum)
        k.storePart(k.splat(0), k.offset(sum, f), used);
  });
  auto begin = [&](Value part) { return k.div(k.mul(part, k.rowCount()), parts); };
  k.loop(begin(k.chunk), begin(k.add(k.chunk, 1)), 1, [&](Value row) {
    rows.emit(row, [&](Value f, int64_t used, Value dy, Value normed) {
      auto before = [&](Value sum) { return k.load(k.offset(sum, f), lanes); };
      if (sums[0])
        k.storePart(k.fma(dy, normed, before(sums[0])), k.offset(sums[0], f), used);
      if (sums[1])
        k.storePart(k.addf(before(sums[1]), dy), k.offset(sums[1], f), used);
    });
  });
  return {{Partition::Unit::One, 1, parts}, 0};
}

// A chunk is a vector of columns.
Backend::KernelInfo emitSumParts(KernelBuilder &k, SumPartsOp op) {
  auto type = cast<RankedTensorType>(op.getParts().front().getType());
  const int64_t parts = type.getDimSize(0), width = type.getDimSize(1), lanes = k.lanes(),
                chunks = (width + lanes - 1) / lanes;
  Value column = k.mul(k.chunk, lanes);
  for (OpResult result : op.getSums()) {
    if (result.use_empty())
      continue;
    Value from = k.offset(k.buffer(result.getResultNumber()), column),
          to = k.offset(k.buffer(op->getNumOperands() + result.getResultNumber()), column);
    Value sum = k.loop(k.index(0), k.index(parts), 1, {k.splat(0)}, [&](Value part, Values s) -> Values {
      return {k.addf(s[0], k.load(k.offset(from, k.mul(part, width)), lanes))};
    })[0];
    k.storeMasked(sum, to, k.lanesBelow(column, k.index(width)));
  }
  return {{Partition::Unit::One, 1, chunks}, 0};
}

// A chunk owns a block of columns and takes rows in order.
Backend::KernelInfo emitNormWeightGrad(KernelBuilder &k, NormWeightGradOp op) {
  const int64_t width = op.getX().getType().getFeatures(), lanes = k.lanes(), vectors = 4, block = vectors * lanes;
  const int64_t chunks = (width + block - 1) / block;
  const bool wantsWeight = !op.getDweight().use_empty(), wantsBias = op.getDbias() && !op.getDbias().use_empty();
  Address dy(k, 0), x(k, 1), stats(k, 2);
  Value columns = k.mul(k.chunk, block);
  auto emit = [&](int64_t used) {
    const int64_t n = (used + lanes - 1) / lanes;
    Values sums = k.loop(k.index(0), k.rowCount(), 1, Values(2 * n, k.splat(0)), [&](Value row, Values s) {
      Value statsRow = stats.row(k, row), means = k.broadcast(k.load(statsRow));
      Value rs = k.broadcast(k.load(k.offset(statsRow, 1)));
      Value dyRow = k.offset(dy.row(k, row), columns), xRow = k.offset(x.row(k, row), columns);
      for (int64_t v = 0; v < n; ++v) {
        Value d = k.load(k.offset(dyRow, v * lanes), lanes);
        Value c = k.subf(k.load(k.offset(xRow, v * lanes), lanes), means);
        s[v] = k.fma(d, k.mulf(c, rs), s[v]);
        s[n + v] = k.addf(s[n + v], d);
      }
      return s;
    });
    for (int64_t v = 0; v < n; ++v) {
      const int64_t part = std::min(lanes, used - v * lanes);
      if (wantsWeight)
        k.storePart(sums[v], k.offset(k.offset(k.buffer(3), columns), v * lanes), part);
      if (wantsBias)
        k.storePart(sums[n + v], k.offset(k.offset(k.buffer(4), columns), v * lanes), part);
    }
  };
  if (width % block == 0)
    emit(block);
  else
    k.when(k.less(k.chunk, k.index(chunks - 1)), [&] { emit(block); }, [&] { emit(width % block); });
  return {{Partition::Unit::One, 1, chunks}, 0};
}

} // namespace xfc
