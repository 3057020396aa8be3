// Losses: verification and gradients.
#include "Support.h"

using namespace mlir;
using namespace xfc;

LogicalResult xfc::verifyLoss(Operation *op, RowsType logits, RowsType labels, Type smoothing,
                              ArrayRef<RowsType> numbers) {
  if (labels.getSet() != logits.getSet())
    return op->emitOpError("labels are rows of ")
           << stringifyRowSet(labels.getSet()) << ", found rows of " << stringifyRowSet(logits.getSet());
  const auto shares = dyn_cast<RowsType>(smoothing);
  if (labels.getShape().empty() ? static_cast<bool>(shares)
                                : !shares || shares.getSet() != labels.getSet() ||
                                      shares.getShape() != ArrayRef<int64_t>(labels.getFeatures() + 1))
    return op->emitOpError("smoothing must be a scalar if rows have one label, and otherwise have one share more than "
                           "a row has labels; found ")
           << labels << " and " << smoothing;
  for (RowsType type : numbers)
    if (type != RowsType::get(op->getContext(), logits.getSet(), {}, logits.getElementType()))
      return op->emitOpError("losses must be one number per row of the labels, found ") << type;
  return verifyOneElementType(op);
}

//===--------------------------------------------------------------------------------------------------------===//
// log_softmax, nll
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult LogSoftmaxOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), LogSoftmaxGradOp::create(builder, getLoc(), dy.getType(), dy, getResult()));
  return success();
}

LogicalResult NllOp::verify() {
  return verifyLoss(*this, getLogProbs().getType(), getLabels().getType(), getSmoothing().getType(),
                    {getLoss().getType(), getNll().getType()});
}

LogicalResult NllOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  if (gradients.of(getNll()))
    return emitOpError("only the loss can be differentiated, not nll");
  Value dloss = gradients.of(getLoss());
  if (dloss && gradients.wanted(getLogProbs()))
    gradients.add(getLogProbs(),
                  NllGradOp::create(builder, getLoc(), getLogProbs().getType(), dloss, getLabels(), getSmoothing()));
  return success();
}

LogicalResult NllGradOp::verify() {
  return verifyLoss(*this, getType(), getLabels().getType(), getSmoothing().getType(), {getDloss().getType()});
}

//===--------------------------------------------------------------------------------------------------------===//
// cross_entropy
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult CrossEntropyOp::verify() {
  return verifyLoss(*this, getLogits().getType(), getLabels().getType(), getSmoothing().getType(),
                    {getLoss().getType(), getNll().getType(), getLse().getType()});
}

LogicalResult CrossEntropyOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  if (gradients.of(getNll()))
    return emitOpError("only the loss can be differentiated, not nll");
  Value dloss = gradients.of(getLoss());
  if (dloss && gradients.wanted(getLogits()))
    gradients.add(getLogits(), CrossEntropyGradOp::create(builder, getLoc(), getLogits().getType(), getLogits(), dloss,
                                                          getLabels(), getLse(), getSmoothing()));
  return success();
}

LogicalResult CrossEntropyGradOp::verify() {
  if (getType() != getLogits().getType())
    return emitOpError("logits and result must have the same type");
  return verifyLoss(*this, getType(), getLabels().getType(), getSmoothing().getType(),
                    {getDloss().getType(), getLse().getType()});
}
