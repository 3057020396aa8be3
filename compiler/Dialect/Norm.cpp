// Norms: verification and gradients.
#include "Norm.h"
#include "Support.h"

using namespace mlir;
using namespace xfc;

namespace {

LogicalResult verifyNorm(Operation *op, RowsType x, Value weight, Value bias, RowsType stats, const NormSpec &spec) {
  for (Value parameter : {weight, bias})
    if (parameter && cast<RankedTensorType>(parameter.getType()).getShape() != ArrayRef<int64_t>{x.getFeatures()})
      return op->emitOpError("parameters must have ") << x.getFeatures() << " elements, found " << parameter.getType();
  if (stats.getShape() != ArrayRef<int64_t>{2} || stats.getSet() != x.getSet())
    return op->emitOpError("stats must be 2 numbers per row of x, found ") << stats;
  if (!(spec.eps >= 0))
    return op->emitOpError("eps must not be negative, found ") << spec.eps;
  if (spec.rms && (bias || spec.unbiased || spec.epsInStd))
    return op->emitOpError("an rms norm cannot have a bias, unbiased or eps_in_std");
  return verifyOneElementType(op);
}

// Adds the gradients of the weights of a norm of `x` and of `inputs`, whose sum is `x`. `addend` is the gradient of `x`
// from its other uses, or null.
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
  if (getX().getType().computed() != getResult().getType().computed())
    return emitOpError("x and result must have the same type");
  return verifyNorm(*this, getX().getType(), getWeight(), getBias(), getStats().getType(), NormSpec::of(*this));
}

LogicalResult NormOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  differentiateNorm(*this, builder, gradients, getX(), {getX()}, nullptr);
  return success();
}

LogicalResult AddNormOp::verify() {
  RowsType x = getX().getType().computed();
  if (getResidual().getType().computed() != x || getResult().getType().computed() != x ||
      getSum().getType().computed() != x)
    return emitOpError("x, residual, result and sum must have the same type");
  return verifyNorm(*this, x, getWeight(), getBias(), getStats().getType(), NormSpec::of(*this));
}

LogicalResult AddNormOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  differentiateNorm(*this, builder, gradients, getSum(), {getX(), getResidual()}, gradients.of(getSum()));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult NormGradOp::verify() {
  RowsType x = getX().getType().computed();
  if (getDy().getType().computed() != x || getType().computed() != x ||
      (getAddend() && getAddend().getType().computed() != x))
    return emitOpError("dy, x, addend and result must have the same type");
  return verifyNorm(*this, x, getWeight(), nullptr, getStats().getType(), NormSpec::of(*this));
}

LogicalResult NormWeightGradOp::verify() {
  if (getDy().getType().computed() != getX().getType().computed())
    return emitOpError("dy and x must have the same type");
  return verifyNorm(*this, getX().getType(), getDweight(), getDbias(), getStats().getType(), {});
}

LogicalResult NormGradWithPartsOp::verify() {
  RowsType x = getX().getType().computed();
  if (getDy().getType().computed() != x || getResult().getType().computed() != x ||
      (getAddend() && getAddend().getType().computed() != x))
    return emitOpError("dy, x, addend and result must have the same type");
  for (Value parts : {Value(getDweights()), Value(getDbiases())})
    if (parts)
      if (auto type = cast<RankedTensorType>(parts.getType());
          type.getRank() != 2 || type.getDimSize(0) < 1 || type.getDimSize(1) != x.getFeatures())
        return emitOpError("parts must be rows of ") << x.getFeatures() << " numbers, found " << type;
  if (getDbiases() && getDbiases().getType() != getDweights().getType())
    return emitOpError("dweights and dbiases must have the same type");
  return verifyNorm(*this, x, getWeight(), nullptr, getStats().getType(), NormSpec::of(*this));
}

LogicalResult SumPartsOp::verify() {
  if (getParts().empty() || getParts().size() != getSums().size())
    return emitOpError("must have as many sums as parts, and at least one");
  for (auto [parts, sum] : llvm::zip_equal(getParts(), getSums())) {
    auto from = cast<RankedTensorType>(parts.getType()), to = cast<RankedTensorType>(sum.getType());
    if (from.getRank() != 2 || to.getShape() != from.getShape().drop_front())
      return emitOpError("the sum of ") << from << " cannot be " << to;
    if (from != getParts().front().getType())
      return emitOpError("parts must have the same type");
  }
  return verifyOneElementType(*this);
}
