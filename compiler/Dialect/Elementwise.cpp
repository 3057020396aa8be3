// Elementwise ops: verification, folding and gradients.
#include "Support.h"

using namespace mlir;
using namespace xfc;

//===--------------------------------------------------------------------------------------------------------===//
// add, multiply
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult AddOp::differentiate(OpBuilder &, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  for (Value operand : {getA(), getB()})
    if (gradients.wanted(operand))
      gradients.add(operand, dy);
  return success();
}

LogicalResult MultiplyOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (!dy)
    return success();
  if (gradients.wanted(getA()))
    gradients.add(getA(), MultiplyOp::create(builder, getLoc(), dy.getType(), dy, getB()));
  if (gradients.wanted(getB()))
    gradients.add(getB(), MultiplyOp::create(builder, getLoc(), dy.getType(), dy, getA()));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// scale
//===--------------------------------------------------------------------------------------------------------===//

OpFoldResult ScaleOp::fold(FoldAdaptor) { return getFactor().isExactlyValue(1) ? getX() : OpFoldResult(); }

LogicalResult ScaleOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), ScaleOp::create(builder, getLoc(), dy.getType(), dy, getFactor()));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// activation
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult ActivationOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (!dy || !gradients.wanted(getX()))
    return success();
  // The gradient of relu can read its result as well as its operand, and the next linear keeps the result alive anyway.
  Value x = getKind() == ActivationKind::relu ? getResult() : getX();
  gradients.add(getX(), ActivationGradOp::create(builder, getLoc(), dy.getType(), dy, x, getKind()));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// dropout
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult DropoutOp::verify() {
  double rate = getRate().convertToDouble();
  if (!(rate >= 0 && rate < 1))
    return emitOpError("rate must be at least 0 and less than 1, found ") << rate;
  if (getKept() && !isa<RowsType>(getType()))
    return emitOpError("kept is only allowed for rows");
  return success();
}

LogicalResult DropoutOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), DropoutOp::create(builder, getLoc(), dy.getType(), dy, getRate(), getId(), getKept()));
  return success();
}

OpFoldResult DropoutOp::fold(FoldAdaptor) { return getRate().isZero() ? getX() : OpFoldResult(); }
