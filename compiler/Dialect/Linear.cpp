// Matrix products over rows and views of features and parameters: verification, folding and gradients.
#include "Support.h"

using namespace mlir;
using namespace xfc;

//===--------------------------------------------------------------------------------------------------------===//
// Shared by linear and linear_input_grad
//===--------------------------------------------------------------------------------------------------------===//

// Verifies a product and its epilogue, which takes the product and the extras, all rows of the type that is computed
// in, and yields the results, which are rounded to their types afterwards.
static LogicalResult verifyProduct(Operation *op, RowsType in, RankedTensorType weight, int inDim, OperandRange extras,
                                   Region &epilogue) {
  if (weight.getRank() != 2)
    return op->emitOpError("weight must have two dimensions, found ") << weight;
  if (in.getFeatures() != weight.getDimSize(inDim))
    return op->emitOpError("rows have ") << in.getFeatures() << " features, weight " << weight << " takes "
                                         << weight.getDimSize(inDim);
  if (failed(verifyOneElementType(op)))
    return failure();
  auto out =
      RowsType::get(op->getContext(), in.getSet(), {weight.getDimSize(1 - inDim)}, in.computed().getElementType());
  for (Type type : op->getResultTypes())
    if (cast<RowsType>(type).computed() != out)
      return op->emitOpError("result must be ") << out << ", found " << type;
  if (epilogue.empty()) {
    if (!extras.empty() || op->getNumResults() != 1)
      return op->emitOpError("without an epilogue, there must be no extras and one result");
    return success();
  }
  Block &block = epilogue.front();
  if (!epilogue.hasOneBlock() || block.getNumArguments() != 1 + extras.size())
    return op->emitOpError("epilogue must be one block with an argument for the product and each of ")
           << extras.size() << " extras";
  for (Type type : block.getArgumentTypes())
    if (type != out)
      return op->emitOpError("epilogue's arguments must be ") << out << ", found " << type;
  int dropouts = 0;
  for (Operation &nested : block) {
    if (!nested.hasTrait<InEpilogue>() && !isa<YieldOp>(nested))
      return op->emitOpError("epilogue cannot hold ") << nested.getName();
    dropouts += isa<DropoutOp>(nested);
  }
  if (dropouts > 1)
    return op->emitOpError("epilogue holds more than one dropout");
  auto yield = dyn_cast_or_null<YieldOp>(block.empty() ? nullptr : &block.back());
  if (!yield || yield.getNumOperands() != op->getNumResults())
    return op->emitOpError("epilogue must yield ") << op->getNumResults() << " values";
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// linear
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult LinearOp::verify() {
  if (getBias() && getBias().getType().getShape() != getWeight().getType().getShape().take_front())
    return emitOpError("bias must have ")
           << getWeight().getType().getDimSize(0) << " elements, found " << getBias().getType();
  return verifyProduct(*this, getX().getType(), getWeight().getType(), 1, getExtras(), getEpilogue());
}

// Adds dx, dW and db of y = x W^T + b, given dy.
static void differentiateLinear(OpBuilder &builder, Location location, Gradients &gradients, Value dy, Value x,
                                Value weight, Value bias, ComputeTypeAttr compute) {
  if (gradients.wanted(x))
    gradients.add(
        x, LinearInputGradOp::create(builder, location, TypeRange{x.getType()}, dy, weight, ValueRange{}, compute)
               .getResult(0));
  const bool wantsBias = bias && gradients.wanted(bias);
  if (gradients.wanted(weight) || wantsBias) {
    auto grad = LinearWeightGradOp::create(builder, location, weight.getType(), wantsBias ? bias.getType() : Type(), dy,
                                           x, compute);
    if (gradients.wanted(weight))
      gradients.add(weight, grad.getDweight());
    if (wantsBias)
      gradients.add(bias, grad.getDbias());
  }
}

LogicalResult LinearOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  if (!getEpilogue().empty())
    return emitOpError("has an epilogue; differentiation must come before epilogues are fused");
  if (Value dy = gradients.of(getResult(0)))
    differentiateLinear(builder, getLoc(), gradients, dy, getX(), getWeight(), getBias(), getComputeAttr());
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// linear_to_cache
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult LinearToCacheOp::verify() {
  RowsType x = getX().getType(), result = getResult().getType();
  RankedTensorType weight = getWeight().getType();
  if (weight.getRank() != 2 || weight.getDimSize(1) != x.getFeatures())
    return emitOpError("weight must be [columns, ") << x.getFeatures() << "], found " << weight;
  if (getBias() && getBias().getType().getShape() != weight.getShape().take_front())
    return emitOpError("bias must have ") << weight.getDimSize(0) << " elements, found " << getBias().getType();
  if (x.getSet() != RowSet::target || result.getSet() != RowSet::target)
    return emitOpError("rows must be rows of the target, found ") << x << " and " << result;
  if (getCaches().empty() || getCaches().getTypes() != getWritten().getTypes())
    return emitOpError("needs caches, and a result of the same type for each of them");
  if (llvm::SmallPtrSet<Value, 4>(getCaches().begin(), getCaches().end()).size() != getCaches().size())
    return emitOpError("writes each cache once, but one is given twice");
  int64_t columns = result.getFeatures();
  for (Type type : getCaches().getTypes()) {
    auto cache = cast<RowsType>(type);
    if (cache.getSet() != RowSet::cache)
      return emitOpError("operand and result must be rows of the cache, found ") << cache;
    columns += cache.getFeatures();
  }
  if (columns != weight.getDimSize(0))
    return emitOpError("rows and caches have ")
           << columns << " features in total, the weight " << weight.getDimSize(0) << " columns";
  for (Type type : getResultTypes())
    if (cast<RowsType>(type).getFeatures() % columnsTogether)
      return emitOpError("features must be a multiple of ") << columnsTogether << ", found " << type;
  return verifyOneElementType(*this);
}

LogicalResult LinearInputGradOp::verify() {
  return verifyProduct(*this, getDy().getType(), getWeight().getType(), 0, getExtras(), getEpilogue());
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients of parameters
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult LinearWeightGradOp::verify() {
  RowsType dy = getDy().getType(), x = getX().getType();
  if (dy.getSet() != x.getSet())
    return emitOpError("dy and x are rows of different sets");
  if (getDweight().getType().getShape() != ArrayRef<int64_t>{dy.getFeatures(), x.getFeatures()})
    return emitOpError("the weight's gradient must be [")
           << dy.getFeatures() << ", " << x.getFeatures() << "], found " << getDweight().getType();
  if (getDbias() && getDbias().getType().getShape() != ArrayRef<int64_t>{dy.getFeatures()})
    return emitOpError("the bias's gradient must have ")
           << dy.getFeatures() << " elements, found " << getDbias().getType();
  return verifyOneElementType(*this);
}

//===--------------------------------------------------------------------------------------------------------===//
// Views of rows: split, join
//===--------------------------------------------------------------------------------------------------------===//

// The parts of split and join must add up to the whole.
static LogicalResult verifyParts(Operation *op, RowsType whole, TypeRange parts) {
  if (parts.empty())
    return op->emitOpError("needs at least one part");
  int64_t features = 0;
  for (Type type : parts) {
    auto part = cast<RowsType>(type);
    if (part.getSet() != whole.getSet() || part.getElementType() != whole.getElementType())
      return op->emitOpError("parts and whole must be rows of the same set and element type");
    features += part.getFeatures();
  }
  if (features != whole.getFeatures())
    return op->emitOpError("parts have ")
           << features << " features in total, but the whole has " << whole.getFeatures();
  return success();
}

LogicalResult SplitOp::verify() { return verifyParts(*this, getX().getType(), getResultTypes()); }

LogicalResult SplitOp::fold(FoldAdaptor, SmallVectorImpl<OpFoldResult> &folded) {
  if (getNumResults() == 1 && getResult(0).getType() == getX().getType())
    return folded.push_back(getX()), success();
  auto join = getX().getDefiningOp<JoinOp>();
  if (!join || join.getParts().getTypes() != getResultTypes())
    return failure();
  folded.append(join.getParts().begin(), join.getParts().end());
  return success();
}

LogicalResult SplitOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  if (!gradients.wanted(getX()) || llvm::none_of(getResults(), [&](Value part) { return gradients.of(part); }))
    return success();
  SmallVector<Value> parts;
  for (Value part : getResults()) {
    Value gradient = gradients.of(part);
    parts.push_back(gradient ? gradient : ZerosOp::create(builder, getLoc(), part.getType()).getResult());
  }
  gradients.add(getX(), JoinOp::create(builder, getLoc(), getX().getType(), parts));
  return success();
}

LogicalResult JoinOp::verify() { return verifyParts(*this, getType(), getParts().getTypes()); }

OpFoldResult JoinOp::fold(FoldAdaptor) {
  if (getParts().size() == 1 && getParts()[0].getType() == getType())
    return getParts()[0];
  auto split = getParts()[0].getDefiningOp<SplitOp>();
  return split && ValueRange(split.getResults()) == ValueRange(getParts()) && split.getX().getType() == getType()
             ? split.getX()
             : OpFoldResult();
}

//===--------------------------------------------------------------------------------------------------------===//
// Views of parameters: concat, slice
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult ConcatOp::verify() {
  if (getParts().empty())
    return emitOpError("needs at least one part");
  int64_t rows = 0;
  for (Value part : getParts()) {
    auto type = cast<RankedTensorType>(part.getType());
    if (type.getRank() == 0 || type.getShape().drop_front() != getType().getShape().drop_front() ||
        type.getElementType() != getType().getElementType())
      return emitOpError("parts and result may only differ in their first dimension, found ")
             << type << " and " << getType();
    rows += type.getDimSize(0);
  }
  if (rows != getType().getDimSize(0))
    return emitOpError("parts have ") << rows << " rows in total, but the result has " << getType().getDimSize(0);
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) { return getParts().size() == 1 ? getParts()[0] : OpFoldResult(); }

LogicalResult ConcatOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  int64_t offset = 0;
  for (Value part : getParts()) {
    if (dy && gradients.wanted(part))
      gradients.add(part, SliceOp::create(builder, getLoc(), part.getType(), dy, builder.getI64IntegerAttr(offset)));
    offset += cast<RankedTensorType>(part.getType()).getDimSize(0);
  }
  return success();
}

LogicalResult SliceOp::verify() {
  RankedTensorType from = getX().getType(), type = getType();
  if (from.getRank() == 0 || from.getRank() != type.getRank() ||
      from.getShape().drop_front() != type.getShape().drop_front() || from.getElementType() != type.getElementType())
    return emitOpError("operand and result may only differ in their first dimension, found ")
           << from << " and " << type;
  auto offset = static_cast<int64_t>(getOffset());
  if (offset < 0 || offset + type.getDimSize(0) > from.getDimSize(0))
    return emitOpError("takes rows ") << offset << " to " << offset + type.getDimSize(0) << " of "
                                      << from.getDimSize(0);
  return success();
}

int64_t SliceOp::getPartOffset(unsigned) {
  return static_cast<int64_t>(getOffset()) * ShapedType::getNumElements(getType().getShape().drop_front());
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  if (getX().getType() == getType())
    return getX();
  auto concat = getX().getDefiningOp<ConcatOp>();
  if (!concat)
    return {};
  int64_t offset = 0;
  for (Value part : concat.getParts()) {
    if (offset == static_cast<int64_t>(getOffset()) && part.getType() == getType())
      return part;
    offset += cast<RankedTensorType>(part.getType()).getDimSize(0);
  }
  return {};
}

//===--------------------------------------------------------------------------------------------------------===//
// linear_cross_entropy
//===--------------------------------------------------------------------------------------------------------===//

// `logits` is the result with one feature per token of the vocabulary; `numbers` are the values with one number per
// row.
template <typename Op> static LogicalResult verifyLinearLoss(Op op, RowsType logits, ArrayRef<RowsType> numbers) {
  RankedTensorType weight = op.getWeight().getType();
  if (weight.getRank() != 2 || weight.getDimSize(1) != op.getX().getType().getFeatures())
    return op.emitOpError("weight must be [vocabulary, ") << op.getX().getType().getFeatures() << "], found " << weight;
  if (logits.getFeatures() != weight.getDimSize(0))
    return op.emitOpError("logits must have ") << weight.getDimSize(0) << " features, found " << logits;
  if (op.getBias() && op.getBias().getType().getShape() != weight.getShape().take_front())
    return op.emitOpError("bias must have ") << weight.getDimSize(0) << " elements, found " << op.getBias().getType();
  return verifyLoss(op, op.getX().getType(), op.getLabels().getType(), op.getSmoothing().getType(), numbers);
}

LogicalResult LinearCrossEntropyOp::verify() {
  return verifyLinearLoss(*this, getLogits().getType(), {getLoss().getType(), getNll().getType(), getLse().getType()});
}

LogicalResult LinearCrossEntropyOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dloss = gradients.of(getLoss());
  if (!dloss)
    return success();
  Value dlogits = CrossEntropyGradOp::create(builder, getLoc(), getLogits().getType(), getLogits(), dloss, getLabels(),
                                             getLse(), getSmoothing());
  differentiateLinear(builder, getLoc(), gradients, dlogits, getX(), getWeight(), getBias(), getComputeAttr());
  return success();
}

LogicalResult LinearCrossEntropyWithGradOp::verify() {
  return verifyLinearLoss(*this, getDlogits().getType(),
                          {getLoss().getType(), getNll().getType(), getDloss().getType()});
}

//===--------------------------------------------------------------------------------------------------------===//
// linear_candidates
//===--------------------------------------------------------------------------------------------------------===//

int64_t LinearCandidatesOp::getSlabs() { return llvm::divideCeil(getWeight().getType().getDimSize(0), getSlab()); }
int64_t LinearCandidatesOp::getCount() { return getTokens().getType().getFeatures() / getSlabs(); }

LogicalResult LinearCandidatesOp::verify() {
  RankedTensorType weight = getWeight().getType();
  if (weight.getRank() != 2 || weight.getDimSize(1) != getX().getType().getFeatures())
    return emitOpError("weight must be [vocabulary, ") << getX().getType().getFeatures() << "], found " << weight;
  const int64_t vocabulary = weight.getDimSize(0);
  if (getBias() && getBias().getType().getShape() != weight.getShape().take_front())
    return emitOpError("bias must have ") << vocabulary << " elements, found " << getBias().getType();
  const int64_t slab = getSlab();
  if (slab <= 0 || slab % 64 != 0)
    return emitOpError("slab must be a multiple of 64, found ") << slab;
  if (getTokens().getType().getFeatures() % getSlabs() != 0)
    return emitOpError("tokens must have the same number of features for each of ")
           << getSlabs() << " slabs, found " << getTokens().getType();
  if (getLse().getType().getFeatures() != getSlabs())
    return emitOpError("lse must have one feature per slab, ") << getSlabs() << ", found " << getLse().getType();
  return verifyCandidates(*this, getX().getType(), getWanted().getType(), getTokens().getType(), getLargest().getType(),
                          getWantedLogit().getType(), getExcluded(), vocabulary);
}
