// Layer and rms norms of rows, alone or after a sum, and their gradients.
#include "Codegen/Norm.h"
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace xfc {
namespace {

// x with the lanes beyond the row's end set to 0.
Value tail(KernelBuilder &k, Value x, int64_t used) {
  if (used == k.lanes())
    return x;
  SmallVector<bool> lanes(k.lanes());
  std::fill_n(lanes.begin(), used, true);
  auto type = VectorType::get({k.lanes()}, k.i1);
  return k.select(arith::ConstantOp::create(k.b, DenseElementsAttr::get(type, ArrayRef<bool>(lanes))), x, 0);
}

// Several sums over a row, each in independent chains if the row is long enough; the number of chains is what 32-byte
// registers hold. body(offset, lanes used) returns a vector for each sum.
SmallVector<Value> rowSums(KernelBuilder &k, int64_t width, int64_t sums,
                           const std::function<SmallVector<Value>(Value, int64_t)> &body) {
  const int64_t lanes = k.lanes(), chains = sums > 1 ? 2 : 4, whole = width / (chains * lanes) * chains * lanes;
  Values state(chains * sums, k.splat(0));
  auto accumulate = [&](Values &s, int64_t chain, Value f, int64_t used) {
    for (auto [i, x] : llvm::enumerate(body(f, used)))
      s[chain * sums + i] = k.addf(s[chain * sums + i], x);
  };
  if (whole)
    state = k.loop(0, whole, chains * lanes, state, [&](Value f, Values s) {
      for (int64_t c = 0; c < chains; ++c)
        accumulate(s, c, k.add(f, c * lanes), lanes);
      return s;
    });
  for (int64_t f = whole, c = 0; f < width; f += lanes, ++c)
    accumulate(state, c, k.index(f), std::min(lanes, width - f));
  for (int64_t half = chains / 2; half >= 1; half /= 2)
    for (int64_t i = 0; i < half * sums; ++i)
      state[i] = k.addf(state[i], state[half * sums + i]);
  SmallVector<Value> results;
  for (int64_t i = 0; i < sums; ++i)
    results.push_back(k.sum(state[i]));
  return results;
}

// The mean and r of a row that `at` reads, in two passes while the row is in the L1 cache.
std::pair<Value, Value> statistics(KernelBuilder &k, const NormFormulas &parts,
                                   const std::function<Value(Value, int64_t)> &at) {
  Value mean = k.scalar(0);
  if (parts.layer)
    mean = parts.mean(k, rowSums(k, parts.width, 1, [&](Value f, int64_t used) {
                        return SmallVector<Value>{tail(k, at(f, used), used)};
                      })[0]);
  Value means = k.broadcast(mean);
  Value squares = rowSums(k, parts.width, 1, [&](Value f, int64_t used) {
    Value c = tail(k, parts.layer ? k.subf(at(f, used), means) : at(f, used), used);
    return SmallVector<Value>{k.mulf(c, c)};
  })[0];
  return {mean, parts.reciprocal(k, parts.variance(k, squares))};
}

// y = w (x - mean) r + b for one row.
void writeNorm(KernelBuilder &k, const NormFormulas &parts, Value mean, Value r, const View &weight, const View &bias,
               const View &to, const std::function<Value(Value, int64_t)> &at) {
  Value means = k.broadcast(mean), rs = k.broadcast(r);
  k.features(parts.width, [&](Value f, int64_t used) {
    Value c = parts.layer ? k.subf(at(f, used), means) : at(f, used);
    auto parameter = [&](const View &data) { return data ? k.load(data + f, k.lanes()) : Value(); };
    Value w = parameter(weight), y = parts.result(k, c, rs, w, parameter(bias));
    k.storePart(y, to + f, used);
  });
}

void writeStats(KernelBuilder &k, const View &to, Value mean, Value r) {
  k.store(mean, to);
  k.store(r, to + 1);
}

} // namespace

static KernelInfo emitNorm(KernelBuilder &k, NormOp op) {
  KernelBuilder::SumLanes wide(k);
  NormFormulas parts(op, op.getX().getType().getFeatures());
  const int64_t per = rowsPerChunk(parts.width);
  View x = k.rowsOf(op.getXMutable()), y = k.rowsOf(op.getResult()), stats = k.rowsOf(op.getStats());
  View weight = k.buffer(op.getWeightMutable()), bias = op.getBias() ? k.buffer(op.getBiasMutable()) : View();
  k.eachRow(per, [&](Value row) {
    View from = x.row(row);
    auto at = [&](Value f, int64_t) { return k.load(from + f, k.lanes()); };
    auto [mean, r] = statistics(k, parts, at);
    if (!op.getResult().use_empty())
      writeNorm(k, parts, mean, r, weight, bias, y.row(row), at);
    if (!op.getStats().use_empty())
      writeStats(k, stats.row(row), mean, r);
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitAddNorm(KernelBuilder &k, AddNormOp op) {
  KernelBuilder::SumLanes wide(k);
  NormFormulas parts(op, op.getX().getType().getFeatures());
  const int64_t per = rowsPerChunk(parts.width);
  View x = k.rowsOf(op.getXMutable()), residual = k.rowsOf(op.getResidualMutable()), y = k.rowsOf(op.getResult()),
       sum = k.rowsOf(op.getSum()), stats = k.rowsOf(op.getStats());
  View weight = k.buffer(op.getWeightMutable()), bias = op.getBias() ? k.buffer(op.getBiasMutable()) : View();
  const bool keep = !op.getSum().use_empty();
  // The norm is that of the sum before it is rounded. A sum that nothing reads, or that is rounded, stays in scratch.
  const bool inScratch = !keep || sum.element != k.element;
  k.eachRow(per, [&](Value row) {
    View from = x.row(row), other = residual.row(row);
    View to = inScratch ? k.scratch : sum.row(row), kept = keep && inScratch ? sum.row(row) : View();
    k.features(parts.width, [&](Value f, int64_t used) {
      Value more = k.load(other + f, k.lanes()), s = k.addf(k.load(from + f, k.lanes()), more);
      k.storePart(s, to + f, used);
      if (kept)
        k.storePart(s, kept + f, used);
    });
    auto at = [&](Value f, int64_t) { return k.load(to + f, k.lanes()); };
    auto [mean, r] = statistics(k, parts, at);
    if (!op.getResult().use_empty())
      writeNorm(k, parts, mean, r, weight, bias, y.row(row), at);
    if (!op.getStats().use_empty())
      writeStats(k, stats.row(row), mean, r);
  });
  return {{Partition::Unit::Rows, per, 1}, inScratch ? (parts.width + 64) * k.bytes() : 0};
}

namespace {

// Computes dx of rows, for norm_grad and norm_grad_with_parts.
template <typename Op> struct NormGradRows {
  KernelBuilder &k;
  NormFormulas parts;
  View dy, x, stats, dx, addend, weight;
  const bool wanted;

  NormGradRows(KernelBuilder &k, Op op)
      : k(k), parts(op, op.getX().getType().getFeatures()), dy(k.rowsOf(op.getDyMutable())),
        x(k.rowsOf(op.getXMutable())), stats(k.rowsOf(op.getStatsMutable())), dx(k.rowsOf(op.getResult())),
        weight(k.buffer(op.getWeightMutable())), wanted(!op.getResult().use_empty()) {
    if (op.getAddend())
      addend = k.rowsOf(op.getAddendMutable());
  }

  // `beside` is called for each vector with its first feature, how many features are used, dy, and (x - mean) r.
  void emit(Value row, const std::function<void(Value f, int64_t used, Value dy, Value normed)> &beside = {}) const {
    const int64_t n = parts.width, lanes = k.lanes();
    View dyRow = dy.row(row), xRow = x.row(row), statsRow = stats.row(row), to = dx.row(row);
    Value mean = k.load(statsRow), r = k.load(statsRow + 1), means = k.broadcast(mean);
    auto dyAt = [&](Value f) { return k.load(dyRow + f, lanes); };
    auto gAt = [&](Value f, Value dy) { return k.mulf(dy, k.load(weight + f, lanes)); };
    auto cAt = [&](Value f) {
      Value v = k.load(xRow + f, lanes);
      return parts.layer ? k.subf(v, means) : v;
    };
    // The sums of g, g c and, where the slope factor needs the standard deviation itself, c^2.
    SmallVector<Value> sums = rowSums(k, n, parts.spec.epsInStd ? 3 : 2, [&](Value f, int64_t used) {
      Value g = tail(k, gAt(f, dyAt(f)), used), c = tail(k, cAt(f), used);
      SmallVector<Value> terms{g, k.mulf(g, c)};
      if (parts.spec.epsInStd)
        terms.push_back(k.mulf(c, c));
      return terms;
    });
    Value factor = parts.slopeFactor(k, r, [&] { return sums[2]; });
    Value slope = k.broadcast(k.mulf(factor, sums[1])), rs = k.broadcast(r);
    Value gMean = k.broadcast(parts.layer ? parts.mean(k, sums[0]) : k.scalar(0));
    View addendRow = addend ? addend.row(row) : View();
    k.features(n, [&](Value f, int64_t used) {
      Value dyF = dyAt(f), c = cAt(f), g = parts.layer ? k.subf(gAt(f, dyF), gMean) : gAt(f, dyF);
      Value d = parts.inputGrad(k, rs, g, slope, c);
      if (addendRow)
        d = k.addf(d, k.load(addendRow + f, lanes));
      if (beside)
        beside(f, used, dyF, k.mulf(c, rs));
      if (wanted)
        k.storePart(d, to + f, used);
    });
  }
};

} // namespace

static KernelInfo emitNormGrad(KernelBuilder &k, NormGradOp op) {
  KernelBuilder::SumLanes wide(k);
  NormGradRows rows(k, op);
  const int64_t per = rowsPerChunk(rows.parts.width);
  k.eachRow(per, [&](Value row) { rows.emit(row); });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

// Each chunk computes one part, whose sums stay in the L1 cache.
static KernelInfo emitNormGradWithParts(KernelBuilder &k, NormGradWithPartsOp op) {
  KernelBuilder::SumLanes wide(k);
  NormGradRows rows(k, op);
  const int64_t parts = op.getDweights().getType().getDimSize(0), width = rows.parts.width, lanes = k.lanes();
  SmallVector<View> sums; // of dy times the normalized x, and of dy
  for (Value result : {Value(op.getDweights()), Value(op.getDbiases())}) {
    View &sum = sums.emplace_back();
    if (result && !result.use_empty()) {
      Value first = k.mul(k.chunk, width);
      sum = k.buffer(result) + first;
    }
  }
  k.features(width, [&](Value f, int64_t used) {
    for (const View &sum : sums)
      if (sum)
        k.storePart(0, sum + f, used);
  });
  auto begin = [&](Value part) { return k.div(k.mul(part, k.rowCount()), parts); };
  Value end = begin(k.add(k.chunk, 1));
  k.loop(begin(k.chunk), end, 1, [&](Value row) {
    rows.emit(row, [&](Value f, int64_t used, Value dy, Value normed) {
      auto before = [&](const View &sum) { return k.load(sum + f, lanes); };
      if (sums[0]) {
        View place = sums[0] + f;
        k.storePart(k.fma(dy, normed, before(sums[0])), place, used);
      }
      if (sums[1]) {
        View place = sums[1] + f;
        k.storePart(k.addf(before(sums[1]), dy), place, used);
      }
    });
  });
  return {{Partition::Unit::One, 1, parts}, 0};
}

// Each chunk sums one vector of columns.
static KernelInfo emitSumParts(KernelBuilder &k, SumPartsOp op) {
  auto type = cast<RankedTensorType>(op.getParts().front().getType());
  const int64_t parts = type.getDimSize(0), width = type.getDimSize(1), lanes = k.lanes(),
                chunks = (width + lanes - 1) / lanes;
  Value column = k.mul(k.chunk, lanes);
  for (OpResult result : op.getSums()) {
    if (result.use_empty())
      continue;
    View from = k.buffer(op->getOpOperand(result.getResultNumber())) + column, to = k.buffer(result) + column;
    Value sum = k.loop(0, parts, 1, {k.splat(0)}, [&](Value part, Values s) -> Values {
      return {k.addf(s[0], k.load(from + k.mul(part, width), lanes))};
    })[0];
    k.storeMasked(sum, to, k.lanesBelow(column, width));
  }
  return {{Partition::Unit::One, 1, chunks}, 0};
}

// Each chunk owns a block of columns and processes the rows in order.
static KernelInfo emitNormWeightGrad(KernelBuilder &k, NormWeightGradOp op) {
  const int64_t width = op.getX().getType().getFeatures(), lanes = k.lanes(), vectors = 4, block = vectors * lanes;
  const int64_t chunks = (width + block - 1) / block;
  const bool wantsWeight = !op.getDweight().use_empty(), wantsBias = op.getDbias() && !op.getDbias().use_empty();
  View dy = k.rowsOf(op.getDyMutable()), x = k.rowsOf(op.getXMutable()), stats = k.rowsOf(op.getStatsMutable());
  Value columns = k.mul(k.chunk, block);
  auto emit = [&](int64_t used) {
    const int64_t n = (used + lanes - 1) / lanes;
    const Values zeros(2 * n, k.splat(0));
    Values sums = k.loop(0, k.rowCount(), 1, zeros, [&](Value row, Values s) {
      View statsRow = stats.row(row);
      Value means = k.broadcast(k.load(statsRow));
      Value rs = k.broadcast(k.load(statsRow + 1));
      View dyRow = dy.row(row) + columns, xRow = x.row(row) + columns;
      for (int64_t v = 0; v < n; ++v) {
        Value d = k.load(dyRow + v * lanes, lanes);
        Value c = k.subf(k.load(xRow + v * lanes, lanes), means);
        s[v] = k.fma(d, k.mulf(c, rs), s[v]);
        s[n + v] = k.addf(s[n + v], d);
      }
      return s;
    });
    for (int64_t v = 0; v < n; ++v) {
      const int64_t part = std::min(lanes, used - v * lanes);
      if (wantsWeight)
        k.storePart(sums[v], k.buffer(op.getDweight()) + columns + v * lanes, part);
      if (wantsBias)
        k.storePart(sums[n + v], k.buffer(op.getDbias()) + columns + v * lanes, part);
    }
  };
  if (width % block == 0)
    emit(block);
  else
    k.when(k.less(k.chunk, chunks - 1), [&] { emit(block); }, [&] { emit(width % block); });
  return {{Partition::Unit::One, 1, chunks}, 0};
}

void attachNormKernels(MLIRContext &context) {
  attachKernels<emitNorm, emitAddNorm, emitNormGrad, emitNormGradWithParts, emitSumParts, emitNormWeightGrad>(context);
}

} // namespace xfc
