// The optimizer's ops: definitions.
#include "Support.h"

using namespace mlir;
using namespace xfc;

LogicalResult SquareSumOp::verify() {
  if (getTensors().empty())
    return emitOpError("needs a tensor");
  if (getType().getRank() != 1 || getType().getDimSize(0) < 1)
    return emitOpError("result must have one dimension and an element, found ") << getType();
  return success();
}

LogicalResult ClipFactorOp::verify() {
  for (Value sums : getSums())
    if (cast<RankedTensorType>(sums.getType()).getRank() != 1)
      return emitOpError("sums must have one dimension, found ") << sums.getType();
  return success();
}

LogicalResult AdamOp::verify() {
  size_t n = getParameters().size();
  if (getGradients().size() != n || getMoments1().size() != n || getMoments2().size() != n || getNumResults() != 3 * n)
    return emitOpError("needs as many gradients, moments and results as parameters: ") << n;
  for (size_t i = 0; i < n; ++i)
    for (Type type : {getGradients()[i].getType(), getMoments1()[i].getType(), getMoments2()[i].getType(),
                      getNewParameters()[i].getType(), getNewMoments1()[i].getType(), getNewMoments2()[i].getType()})
      if (type != getParameters()[i].getType())
        return emitOpError("everything of parameter ")
               << i << " must be " << getParameters()[i].getType() << ", found " << type;
  if (getHyper().getType().getShape() != ArrayRef<int64_t>{8})
    return emitOpError("hyper must have 8 elements, found ") << getHyper().getType();
  return success();
}

// Each new parameter and moment is written where the old one was.
int64_t AdamOp::getInPlaceOperand(unsigned result) {
  const unsigned n = getParameters().size();
  const OperandRange groups[] = {getParameters(), getMoments1(), getMoments2()};
  return groups[result / n].getBeginOperandIndex() + result % n;
}

void AdamOp::getEffects(SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (getPacks())
    effects.emplace_back(MemoryEffects::Write::get(), PackedWeights::get());
}
