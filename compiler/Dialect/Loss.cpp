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
    if (type != RowsType::get(op->getContext(), logits.getSet(), {}, logits.computed().getElementType()))
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
  if (getType().computed() != getLogits().getType().computed())
    return emitOpError("logits and result must have the same type");
  return verifyLoss(*this, getType(), getLabels().getType(), getSmoothing().getType(),
                    {getDloss().getType(), getLse().getType()});
}

//===--------------------------------------------------------------------------------------------------------===//
// alignment_loss
//===--------------------------------------------------------------------------------------------------------===//

// Checks that xfc.alignment_loss and its gradient share. Each of `numbers` is one number per query.
template <typename Op>
static LogicalResult verifyAlignment(Op op, PairsType pairs, RowsType means, ArrayRef<RowsType> numbers) {
  const RowsType links = op.getLinks().getType();
  if (links.getSet() != pairs.getQueries())
    return op.emitOpError("links are rows of ") << stringifyRowSet(links.getSet()) << ", but the queries are rows of "
                                                << stringifyRowSet(pairs.getQueries());
  const auto ofLinks = RowsType::get(op.getContext(), links.getSet(), links.getShape(), pairs.getElementType());
  for (RowsType type : {op.getShares().getType(), means})
    if (type != ofLinks)
      return op.emitOpError("shares and means must be one number per link, ") << ofLinks << ", found " << type;
  for (RowsType type : numbers)
    if (type != RowsType::get(op.getContext(), links.getSet(), {}, pairs.getElementType()))
      return op.emitOpError("losses must be one number per query, found ") << type;
  if (op.getHead() && *op.getHead() >= static_cast<uint64_t>(pairs.getHeads()))
    return op.emitOpError("head must be one of ") << pairs.getHeads() << ", found " << *op.getHead();
  return success();
}

LogicalResult AlignmentLossOp::verify() {
  return verifyAlignment(*this, getP().getType(), getMeans().getType(),
                         {getLoss().getType(), getResult().getType(), getAlignment().getType()});
}

LogicalResult AlignmentLossOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  if (gradients.of(getAlignment()) || gradients.of(getMeans()))
    return emitOpError("only the result can be differentiated, not alignment or means");
  Value dloss = gradients.of(getResult());
  if (!dloss)
    return success();
  if (gradients.wanted(getLoss()))
    gradients.add(getLoss(), dloss);
  if (gradients.wanted(getP()))
    gradients.add(getP(), AlignmentLossGradOp::create(builder, getLoc(), getP().getType(), dloss, getMeans(),
                                                      getLinks(), getShares(), getHeadAttr()));
  return success();
}

LogicalResult AlignmentLossGradOp::verify() {
  return verifyAlignment(*this, getType(), getMeans().getType(), {getDloss().getType()});
}
