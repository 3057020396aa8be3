// Recurrence: verification and gradients.
#include "Support.h"

using namespace mlir;
using namespace xfc;

// Checks that the rows which are scanned belong to sequences, and that all have one type.
static LogicalResult verifyScanned(Operation *op, RowsType scanned, ArrayRef<Type> others) {
  if (scanned.getSet() == RowSet::cache)
    return op->emitOpError("must scan rows of the source or the target, found ") << scanned;
  for (Type other : others)
    if (cast<RowsType>(other).computed() != scanned.computed())
      return op->emitOpError("rows must have one type, found ") << scanned << " and " << other;
  return success();
}

LogicalResult RecurrenceOp::verify() {
  RowsType gate = getGate().getType();
  if (failed(verifyScanned(*this, gate, {getX().getType(), getType()})))
    return failure();
  if (!getStates())
    return success();
  if (gate.getSet() != RowSet::target)
    return emitOpError("with states, rows must be rows of the target, found ") << gate;
  const Type states = RowsType::get(getContext(), RowSet::cache, gate.getShape(), gate.getElementType());
  if (getStates().getType() != states)
    return emitOpError("states must be ") << states << ", found " << getStates().getType();
  return success();
}

LogicalResult RecurrenceOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (!dy)
    return success();
  if (getStates())
    return emitOpError("with states belongs to a decoding step, which has no gradient");
  auto grad = RecurrenceGradOp::create(builder, getLoc(), getGate().getType(), getX().getType(), dy, getGate(), getX(),
                                       getResult());
  gradients.add(getGate(), gradients.wanted(getGate()) ? grad.getDgate() : Value());
  gradients.add(getX(), gradients.wanted(getX()) ? grad.getDx() : Value());
  return success();
}

LogicalResult RecurrenceGradOp::verify() {
  return verifyScanned(
      *this, getDy().getType(),
      {getGate().getType(), getX().getType(), getC().getType(), getDgate().getType(), getDx().getType()});
}
