// Norms: definitions, f64 semantics and gradients.
#include "PlainBuilder.h"
#include "Support.h"
#include <cmath>

using namespace mlir;
using namespace xfc;

namespace {

// The attributes of any op of the family.
struct NormSpec {
  bool rms, unbiased, epsInStd;
  double eps;
  template <typename Op> static NormSpec of(Op op) {
    return {op.getKind() == NormKind::rms, op.getUnbiased(), op.getEpsInStd(), op.getEps().convertToDouble()};
  }
  double divisor(int64_t n) const { return unbiased ? n - 1 : n; }
};

LogicalResult verifyNorm(Operation *op, RowsType x, Value weight, Value bias, RowsType stats, const NormSpec &spec) {
  for (Value parameter : {weight, bias})
    if (parameter && cast<RankedTensorType>(parameter.getType()).getShape() != ArrayRef<int64_t>{x.getFeatures()})
      return op->emitOpError("parameters must have ") << x.getFeatures() << " elements, found " << parameter.getType();
  if (stats.getShape() != ArrayRef<int64_t>{2} || stats.getSet() != x.getSet())
    return op->emitOpError("stats must be 2 numbers a row of x, found ") << stats;
  if (!(spec.eps >= 0))
    return op->emitOpError("eps must not be negative, found ") << spec.eps;
  if (spec.rms && (bias || spec.unbiased || spec.epsInStd))
    return op->emitOpError("an rms norm has no bias, unbiased or eps_in_std");
  return verifyOneElementType(op);
}

void evaluateNorm(const NormSpec &spec, const Tensor &x, const Tensor &weight, const Tensor *bias, Tensor &y,
                  Tensor &stats) {
  const int64_t n = x.features();
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    double mean = 0, squares = 0;
    if (!spec.rms)
      for (int64_t f = 0; f < n; ++f)
        mean += x.row(i)[f] / n;
    for (int64_t f = 0; f < n; ++f)
      squares += (x.row(i)[f] - mean) * (x.row(i)[f] - mean);
    double divisor = spec.divisor(n), variance = divisor > 0 ? squares / divisor : 0;
    double r = spec.epsInStd ? 1 / (std::sqrt(variance) + spec.eps) : 1 / std::sqrt(variance + spec.eps);
    for (int64_t f = 0; f < n; ++f)
      y.row(i)[f] = weight.data[f] * (x.row(i)[f] - mean) * r + (bias ? bias->data[f] : 0);
    stats.row(i)[0] = mean;
    stats.row(i)[1] = r;
  }
}

// dx, from dy, x, weight, stats and an addend if it is among the operands.
void evaluateNormGrad(const NormSpec &spec, ArrayRef<Tensor> operands, bool hasAddend, Tensor &dx) {
  const Tensor &dy = operands[0], &x = operands[1], &weight = operands[2], &stats = operands[3];
  const int64_t n = x.features();
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    double mean = stats.row(i)[0], r = stats.row(i)[1], sumG = 0, sumGC = 0;
    for (int64_t f = 0; f < n; ++f) {
      double g = dy.row(i)[f] * weight.data[f];
      sumG += g;
      sumGC += g * (x.row(i)[f] - mean);
    }
    double k = spec.divisor(n) > 0 ? r * r * r / spec.divisor(n) : 0;
    if (spec.epsInStd) {
      double std = 1 / r - spec.eps;
      k = std > 0 && spec.divisor(n) > 0 ? r * r / (std * spec.divisor(n)) : 0;
    }
    for (int64_t f = 0; f < n; ++f)
      dx.row(i)[f] = r * (dy.row(i)[f] * weight.data[f] - (spec.rms ? 0 : sumG / n)) -
                     k * (x.row(i)[f] - mean) * sumGC + (hasAddend ? operands[4].row(i)[f] : 0);
  }
}

// Rows from `begin` on of what dweight and dbias are the sums of, added to `dweight` and `dbias`.
void evaluateNormWeightGrad(const Tensor &dy, const Tensor &x, const Tensor &stats, int64_t begin, int64_t end,
                            double *dweight, double *dbias) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t f = 0; f < x.features(); ++f) {
      dweight[f] += dy.row(i)[f] * (x.row(i)[f] - stats.row(i)[0]) * stats.row(i)[1];
      dbias[f] += dy.row(i)[f];
    }
}

// Gradients of everything a norm of `x` depends on, given dy and what else flows into x.
template <typename Op>
void differentiateNorm(Op op, OpBuilder &builder, Gradients &gradients, Value x, ValueRange inputs, Value addend) {
  Value dy = gradients.of(op.getResult());
  if (!dy) {
    for (Value input : inputs)
      if (gradients.wanted(input))
        gradients.add(input, addend);
    return;
  }
  if (llvm::any_of(inputs, [&](Value input) { return gradients.wanted(input); })) {
    Value dx = NormGradOp::create(builder, op.getLoc(), x.getType(), dy, x, op.getWeight(), op.getStats(), addend,
                                  op.getKindAttr(), op.getEpsAttr(), op.getUnbiasedAttr(), op.getEpsInStdAttr());
    for (Value input : inputs)
      if (gradients.wanted(input))
        gradients.add(input, dx);
  }
  Value bias = op.getBias();
  if (gradients.wanted(op.getWeight()) || (bias && gradients.wanted(bias))) {
    auto grad = NormWeightGradOp::create(builder, op.getLoc(), op.getWeight().getType(), bias ? bias.getType() : Type(),
                                         dy, x, op.getStats());
    gradients.add(op.getWeight(), grad.getDweight());
    if (bias)
      gradients.add(bias, grad.getDbias());
  }
}

} // namespace

//===--------------------------------------------------------------------------------------------------------===//
// norm, add_norm
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult NormOp::verify() {
  if (getX().getType() != getResult().getType())
    return emitOpError("x and result must have one type");
  return verifyNorm(*this, getX().getType(), getWeight(), getBias(), getStats().getType(), NormSpec::of(*this));
}

LogicalResult NormOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor y = zeros(shape, getResult().getType()), stats = zeros(shape, getStats().getType());
  evaluateNorm(NormSpec::of(*this), operands[0], operands[1], getBias() ? &operands[2] : nullptr, y, stats);
  results.append({std::move(y), std::move(stats)});
  return success();
}

void NormOp::lowerPlain(PlainBuilder &b) {
  const NormSpec spec = NormSpec::of(*this);
  const int64_t n = getX().getType().getFeatures();
  Value x = b.operand(0), weight = b.operand(1), bias = getBias() ? b.operand(2) : Value(), y = b.result(0),
        stats = b.result(1);
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value row = b.slice(x, {i});
    Number mean = spec.rms ? Number(0) : b.reduce("j->", row, 0, [](auto v) { return v[1] + v[0]; }) / n;
    Number squares = b.reduce("j->", row, 0, [&](auto v) { return v[1] + (v[0] - mean) * (v[0] - mean); });
    Number variance = squares * (spec.divisor(n) > 0 ? 1 / spec.divisor(n) : 0);
    Number r = 1 / (spec.epsInStd ? sqrt(variance) + spec.eps : sqrt(variance + spec.eps));
    SmallVector<Value> operands = {row, weight};
    if (bias)
      operands.push_back(bias);
    b.elementwise(operands, b.slice(y, {i}), [&](auto v) {
      Number scaled = v[1] * (v[0] - mean) * r;
      return bias ? scaled + v[2] : scaled;
    });
    b.store(mean, stats, {i, 0});
    b.store(r, stats, {i, 1});
  });
}

LogicalResult NormOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  differentiateNorm(*this, builder, gradients, getX(), {getX()}, nullptr);
  return success();
}

LogicalResult AddNormOp::verify() {
  RowsType x = getX().getType();
  if (getResidual().getType() != x || getResult().getType() != x || getSum().getType() != x)
    return emitOpError("x, residual, result and sum must have one type");
  return verifyNorm(*this, x, getWeight(), getBias(), getStats().getType(), NormSpec::of(*this));
}

LogicalResult AddNormOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor sum = operands[0], y = zeros(shape, getResult().getType()), stats = zeros(shape, getStats().getType());
  for (size_t i = 0; i < sum.data.size(); ++i)
    sum.data[i] += operands[1].data[i];
  evaluateNorm(NormSpec::of(*this), sum, operands[2], getBias() ? &operands[3] : nullptr, y, stats);
  results.append({std::move(y), std::move(sum), std::move(stats)});
  return success();
}

LogicalResult AddNormOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  differentiateNorm(*this, builder, gradients, getSum(), {getX(), getResidual()}, gradients.of(getSum()));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult NormGradOp::verify() {
  RowsType x = getX().getType();
  if (getDy().getType() != x || getType() != x || (getAddend() && getAddend().getType() != x))
    return emitOpError("dy, x, addend and result must have one type");
  return verifyNorm(*this, x, getWeight(), nullptr, getStats().getType(), NormSpec::of(*this));
}

LogicalResult NormGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                   SmallVectorImpl<Tensor> &results) {
  Tensor dx = zeros(shape, getType());
  evaluateNormGrad(NormSpec::of(*this), operands, static_cast<bool>(getAddend()), dx);
  results.push_back(std::move(dx));
  return success();
}

void NormGradOp::lowerPlain(PlainBuilder &b) {
  const NormSpec spec = NormSpec::of(*this);
  const int64_t n = getX().getType().getFeatures();
  const double inverse = spec.divisor(n) > 0 ? 1 / spec.divisor(n) : 0;
  Value dy = b.operand(0), x = b.operand(1), weight = b.operand(2), stats = b.operand(3), dx = b.result(0);
  Value addend = getAddend() ? b.operand(4) : Value();
  b.forEach(b.rowCount(), [&](const Number &i) {
    Number mean = b.load(stats, {i, 0}), r = b.load(stats, {i, 1});
    SmallVector<Value> rows = {b.slice(dy, {i}), weight, b.slice(x, {i})};
    Number meanG = b.reduce("j,j,j->", rows, 0, [&](auto v) { return v[3] + v[0] * v[1]; }) / n;
    Number sumGC = b.reduce("j,j,j->", rows, 0, [&](auto v) { return v[3] + v[0] * v[1] * (v[2] - mean); });
    Number k = r * r * r * inverse;
    if (spec.epsInStd) {
      Number std = 1 / r - spec.eps;
      k = select(std > 0, r * r / std * inverse, 0);
    }
    if (addend)
      rows.push_back(b.slice(addend, {i}));
    b.elementwise(rows, b.slice(dx, {i}), [&](auto v) {
      Number g = v[0] * v[1], centered = spec.rms ? g : g - meanG;
      Number d = r * centered - k * (v[2] - mean) * sumGC;
      return addend ? d + v[3] : d;
    });
  });
}

LogicalResult NormWeightGradOp::verify() {
  if (getDy().getType() != getX().getType())
    return emitOpError("dy and x must have one type");
  return verifyNorm(*this, getX().getType(), getDweight(), getDbias(), getStats().getType(), {});
}

LogicalResult NormWeightGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                         SmallVectorImpl<Tensor> &results) {
  Tensor dweight = zeros(shape, getDweight().getType()), dbias = dweight;
  evaluateNormWeightGrad(operands[0], operands[1], operands[2], 0, operands[1].shape[0], dweight.data.data(),
                         dbias.data.data());
  results.push_back(std::move(dweight));
  if (getDbias())
    results.push_back(std::move(dbias));
  return success();
}

void NormWeightGradOp::lowerPlain(PlainBuilder &b) {
  Value dy = b.operand(0), x = b.operand(1), stats = b.operand(2), dweight = b.result(0),
        dbias = getDbias() ? b.result(1) : Value();
  Value means = b.slice(stats, {Cut::all(), 0}), rs = b.slice(stats, {Cut::all(), 1});
  b.fill(dweight, 0);
  b.generic("ij,ij,i,i->j", {dy, x, means, rs}, dweight, [](auto v) { return v[4] + v[0] * (v[1] - v[2]) * v[3]; });
  b.fill(dbias, 0);
  b.generic("ij->j", dy, dbias, [](auto v) { return v[1] + v[0]; });
}

LogicalResult NormGradWithPartsOp::verify() {
  RowsType x = getX().getType();
  if (getDy().getType() != x || getResult().getType() != x || (getAddend() && getAddend().getType() != x))
    return emitOpError("dy, x, addend and result must have one type");
  for (Value parts : {Value(getDweights()), Value(getDbiases())})
    if (parts)
      if (auto type = cast<RankedTensorType>(parts.getType());
          type.getRank() != 2 || type.getDimSize(0) < 1 || type.getDimSize(1) != x.getFeatures())
        return emitOpError("parts must be some rows of ") << x.getFeatures() << " numbers, found " << type;
  if (getDbiases() && getDbiases().getType() != getDweights().getType())
    return emitOpError("dweights and dbiases must have one type");
  return verifyNorm(*this, x, getWeight(), nullptr, getStats().getType(), NormSpec::of(*this));
}

LogicalResult NormGradWithPartsOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                            SmallVectorImpl<Tensor> &results) {
  Tensor dx = zeros(shape, getResult().getType()), dweights = zeros(shape, getDweights().getType()), dbiases = dweights;
  evaluateNormGrad(NormSpec::of(*this), operands, static_cast<bool>(getAddend()), dx);
  const int64_t parts = dweights.shape[0], rows = operands[1].shape[0];
  for (int64_t p = 0; p < parts; ++p)
    evaluateNormWeightGrad(operands[0], operands[1], operands[3], p * rows / parts, (p + 1) * rows / parts,
                           dweights.row(p), dbiases.row(p));
  results.append({std::move(dx), std::move(dweights)});
  if (getDbiases())
    results.push_back(std::move(dbiases));
  return success();
}

LogicalResult SumPartsOp::verify() {
  if (getParts().empty() || getParts().size() != getSums().size())
    return emitOpError("must have as many sums as parts, and one at least");
  for (auto [parts, sum] : llvm::zip_equal(getParts(), getSums())) {
    auto from = cast<RankedTensorType>(parts.getType()), to = cast<RankedTensorType>(sum.getType());
    if (from.getRank() != 2 || to.getShape() != from.getShape().drop_front())
      return emitOpError("the sum of ") << from << " cannot be " << to;
    if (from != getParts().front().getType())
      return emitOpError("parts must have one type");
  }
  return verifyOneElementType(*this);
}

LogicalResult SumPartsOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                   SmallVectorImpl<Tensor> &results) {
  for (auto [parts, result] : llvm::zip_equal(operands, getSums())) {
    Tensor sum = zeros(shape, result.getType());
    for (int64_t p = 0; p < parts.shape[0]; ++p)
      for (int64_t f = 0; f < parts.shape[1]; ++f)
        sum.data[f] += parts.data[p * parts.shape[1] + f];
    results.push_back(std::move(sum));
  }
  return success();
}
