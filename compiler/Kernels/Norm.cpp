// Layer and rms norms of rows, alone or after a sum, and their gradients.
#include "Dialect/Norm.h"
#include "RowKernels.h"

using namespace mlir;

namespace xfc {
namespace {

// The norm of rows of `width` features.
struct NormFormulas {
  template <typename Op>
  NormFormulas(Op op, int64_t width)
      : spec(NormSpec::of(op)), width(width), count(spec.unbiased ? width - 1 : width), layer(!spec.rms) {}

  const NormSpec spec;
  const int64_t width;
  const int64_t count; // divisor of the sum of squares; 0: the variance is 0
  const bool layer;    // whether the mean is subtracted

  Value mean(CodeBuilder &k, Value sum) const { return k.mulf(sum, 1.0 / width); }
  // `squares` is the sum of squares of x - mean.
  Value variance(CodeBuilder &k, Value squares) const { return count ? k.mulf(squares, 1.0 / count) : k.scalar(0); }
  // r = 1 / sqrt(variance + eps), or 1 / (sqrt(variance) + eps).
  Value reciprocal(CodeBuilder &k, Value variance) const {
    Value eps = k.scalar(spec.eps);
    return k.divf(1, spec.epsInStd ? k.addf(k.sqrt(variance), eps) : k.sqrt(k.addf(variance, eps)));
  }
  // y = c r w + b, with c = x - mean; `bias` may be null.
  Value result(CodeBuilder &k, Value c, Value r, Value weight, Value bias) const {
    Value y = k.mulf(k.mulf(c, r), weight);
    return bias ? k.addf(y, bias) : y;
  }

  // Whether slopeFactor needs the sum of squares.
  bool needsSquares() const { return count && spec.epsInStd; }
  // The factor of c sum(g c) in the gradient, given the sum of squares if it is needed.
  Value slopeFactor(CodeBuilder &k, Value r, Value squares) const {
    if (!count)
      return k.scalar(0);
    if (!spec.epsInStd) {
      Value share = k.mulf(r, 1.0 / count);
      return k.mulf(k.mulf(r, r), share);
    }
    Value std = k.sqrt(variance(k, squares)), positive = k.lessf(0, std);
    Value divisor = k.select(positive, std, 1);
    Value quotient = k.divf(k.mulf(k.mulf(r, r), 1.0 / count), divisor);
    return k.select(positive, quotient, 0);
  }
  // dx = r g - slope c, where g is dy w, less its mean if the mean of x is subtracted.
  Value inputGrad(CodeBuilder &k, Value r, Value g, Value slope, Value c) const {
    Value along = k.mulf(slope, c);
    return k.subf(k.mulf(r, g), along);
  }
};

// Writes the results of the norm of a row, for norm and add_norm.
template <typename Op> struct NormOfRow {
  Machine &k;
  const NormFormulas parts;
  const std::unique_ptr<ShortRows> rows;
  const View result, stats, weight, bias; // there may be no bias
  const bool wantsResult, wantsStats;
  SmallVector<BufferIndex> buffers; // that are visited

  NormOfRow(Machine &k, Op op)
      : k(k), parts(op, widthOf(op.getX())), rows(k.shortRows(parts.width)), result(k.rowsOf(op.getResult())),
        stats(k.rowsOf(op.getStats())), weight(k.buffer(op.getWeightMutable())),
        bias(op.getBias() ? k.buffer(op.getBiasMutable()) : View()), wantsResult(!op.getResult().use_empty()),
        wantsStats(!op.getStats().use_empty()), buffers({op.getXMutable(), op.getWeightMutable()}) {
    if (bias)
      buffers.push_back(op.getBiasMutable());
    if (wantsResult)
      buffers.push_back(op.getResult());
  }

  // In two passes, so that the variance does not cancel.
  void write(const Row &x, Value number) const {
    Value mean = parts.layer ? parts.mean(k, rows->sum({x}, [](ArrayRef<Value> v) { return v[0]; })) : k.scalar(0);
    auto centered = [&](Value v) { return parts.layer ? k.subf(v, mean) : v; };
    Value squares = rows->sum({x}, [&](ArrayRef<Value> v) {
      Value c = centered(v[0]);
      return k.mulf(c, c);
    });
    Value r = parts.reciprocal(k, parts.variance(k, squares));
    if (wantsResult) {
      SmallVector<Row> operands = {x, rows->load(weight)};
      if (bias)
        operands.push_back(rows->load(bias));
      rows->store(operands, result.row(number),
                  [&](ArrayRef<Value> v) { return parts.result(k, centered(v[0]), r, v[1], bias ? v[2] : Value()); });
    }
    if (wantsStats)
      rows->once([&] {
        View to = stats.row(number);
        k.store(mean, to);
        k.store(r, to + 1);
      });
  }
};

// Computes dx of rows, for norm_grad and norm_grad_with_parts.
template <typename Op> struct NormGradOfRow {
  Machine &k;
  const NormFormulas parts;
  const std::unique_ptr<ShortRows> rows;
  const View dy, x, stats, dx, addend, weight; // there may be no addend
  const bool wanted;
  SmallVector<BufferIndex> buffers; // that are visited

  NormGradOfRow(Machine &k, Op op)
      : k(k), parts(op, widthOf(op.getX())), rows(k.shortRows(parts.width)), dy(k.rowsOf(op.getDyMutable())),
        x(k.rowsOf(op.getXMutable())), stats(k.rowsOf(op.getStatsMutable())), dx(k.rowsOf(op.getResult())),
        addend(op.getAddend() ? k.rowsOf(op.getAddendMutable()) : View()), weight(k.buffer(op.getWeightMutable())),
        wanted(!op.getResult().use_empty()), buffers({op.getDyMutable(), op.getXMutable(), op.getWeightMutable()}) {
    if (wanted)
      buffers.push_back(op.getResult());
    if (addend)
      buffers.push_back(op.getAddendMutable());
  }

  // Adds what `beside` returns, given dy and (x - mean) r and the numbers of `totals`, to these.
  using Beside = std::function<Values(Value dy, Value normed, ArrayRef<Value> totals)>;
  void write(Value number, MutableArrayRef<Row> totals = {}, const Beside &beside = {}) const {
    View statsRow = stats.row(number);
    Value mean = k.load(statsRow), r = k.load(statsRow + 1);
    const Row dyRow = rows->load(dy.row(number)), weights = rows->load(weight), xRow = rows->load(x.row(number));
    auto gOf = [&](ArrayRef<Value> v) { return k.mulf(v[0], v[1]); };
    auto cOf = [&](ArrayRef<Value> v) { return parts.layer ? k.subf(v[2], mean) : v[2]; };
    // The sums of g, of g c and, if the factor of the slope needs it, of c^2.
    const int64_t count = parts.spec.epsInStd ? 3 : 2;
    const Values sums = rows->sumsAndTotals(count, {dyRow, weights, xRow}, totals, [&](ArrayRef<Value> v) -> Values {
      Value g = gOf(v), c = cOf(v);
      Values terms(count);
      if (wanted && parts.layer)
        terms[0] = g;
      if (wanted && parts.count)
        terms[1] = k.mulf(g, c);
      if (wanted && parts.needsSquares())
        terms[2] = k.mulf(c, c);
      if (beside)
        terms.append(beside(v[0], k.mulf(c, r), v.drop_front(3)));
      return terms;
    });
    if (!wanted)
      return;
    Value slope = parts.count ? k.mulf(parts.slopeFactor(k, r, count > 2 ? sums[2] : Value()), sums[1]) : k.scalar(0);
    Value gMean = parts.layer ? parts.mean(k, sums[0]) : Value();
    SmallVector<Row> operands = {dyRow, weights, xRow};
    if (addend)
      operands.push_back(rows->load(addend.row(number)));
    rows->store(operands, dx.row(number), [&](ArrayRef<Value> v) {
      Value g = gOf(v), c = cOf(v);
      if (gMean)
        g = k.subf(g, gMean);
      Value d = parts.inputGrad(k, r, g, slope, c);
      return addend ? k.addf(d, v[3]) : d;
    });
  }
};

} // namespace

static Partition emitNorm(Machine &k, NormOp op) {
  const NormOfRow norm(k, op);
  const View x = k.rowsOf(op.getXMutable());
  return norm.rows->each(norm.buffers, [&](Value row) { norm.write(norm.rows->load(x.row(row)), row); });
}

// The norm is that of the sum before it is rounded.
static Partition emitAddNorm(Machine &k, AddNormOp op) {
  NormOfRow norm(k, op);
  const View x = k.rowsOf(op.getXMutable()), residual = k.rowsOf(op.getResidualMutable()), sum = k.rowsOf(op.getSum());
  const bool kept = !op.getSum().use_empty();
  norm.buffers.push_back(op.getResidualMutable());
  if (kept)
    norm.buffers.push_back(op.getSum());
  return norm.rows->each(norm.buffers, [&](Value row) {
    const Row from = norm.rows->load(x.row(row)), other = norm.rows->load(residual.row(row));
    norm.write(norm.rows->keep({from, other}, kept ? sum.row(row) : View(),
                               [&](ArrayRef<Value> v) { return k.addf(v[0], v[1]); }),
               row);
  });
}

static Partition emitNormGrad(Machine &k, NormGradOp op) {
  const NormGradOfRow norm(k, op);
  return norm.rows->each(norm.buffers, [&](Value row) { norm.write(row); });
}

static Partition emitNormGradWithParts(Machine &k, NormGradWithPartsOp op) {
  const NormGradOfRow norm(k, op);
  const bool ofWeights = !op.getDweights().use_empty();
  SmallVector<BufferIndex, 2> sums;
  if (ofWeights)
    sums.push_back(op.getDweights());
  if (op.getDbiases() && !op.getDbiases().use_empty())
    sums.push_back(op.getDbiases());
  auto beside = [&](Value dy, Value normed, ArrayRef<Value> totals) {
    Values next;
    if (ofWeights)
      next.push_back(k.fma(dy, normed, totals.front()));
    if (sums.size() > next.size())
      next.push_back(k.addf(totals.back(), dy));
    return next;
  };
  return norm.rows->eachOfPart(op.getDweights().getType().getDimSize(0), norm.buffers, sums,
                               [&](Value row, MutableArrayRef<Row> totals) { norm.write(row, totals, beside); });
}

// The result, or null if nothing reads it.
static Value ifRead(Value result) { return result && !result.use_empty() ? result : Value(); }

static Partition emitSumParts(Machine &k, SumPartsOp op) {
  auto type = cast<RankedTensorType>(op.getParts().front().getType());
  const int64_t width = type.getDimSize(1);
  SmallVector<View> parts;
  for (OpOperand &part : op.getPartsMutable())
    parts.push_back(k.buffer(part).inRows(width));
  auto add = [&](const Values &, ArrayRef<Value> xs, ArrayRef<Value> sums) {
    return llvm::map_to_vector<16>(llvm::zip_equal(sums, xs), [&](auto both) {
      auto [sum, x] = both;
      return k.addf(sum, x);
    });
  };
  return k.sumColumns(
      width, k.index(type.getDimSize(0)), parts, llvm::map_to_vector(op.getSums(), ifRead),
      [](Value) { return Values(); }, add);
}

static Partition emitNormWeightGrad(Machine &k, NormWeightGradOp op) {
  const View dy = k.rowsOf(op.getDyMutable()), x = k.rowsOf(op.getXMutable()), stats = k.rowsOf(op.getStatsMutable());
  auto statsOf = [&](Value row) -> Values {
    const View ofRow = stats.row(row);
    Value mean = k.load(ofRow);
    return {mean, k.load(ofRow + 1)};
  };
  auto add = [&](const Values &ofRow, ArrayRef<Value> v, ArrayRef<Value> sums) -> Values {
    Value normed = k.mulf(k.subf(v[1], ofRow[0]), ofRow[1]);
    return {k.fma(v[0], normed, sums[0]), k.addf(sums[1], v[0])};
  };
  return k.sumColumns(widthOf(op.getX()), k.rowCount(), {dy, x}, {ifRead(op.getDweight()), ifRead(op.getDbias())},
                      statsOf, add);
}

void attachNormBodies(MLIRContext &context) {
  attachRowKernels<emitNorm, emitAddNorm, emitNormGrad, emitNormGradWithParts, emitSumParts, emitNormWeightGrad>(
      context);
}

} // namespace xfc
