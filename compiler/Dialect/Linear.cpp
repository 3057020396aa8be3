// Matrix products over rows and views of features and parameters: definitions, f64 semantics and gradients.
#include "PlainBuilder.h"
#include "Support.h"

using namespace mlir;
using namespace xfc;

//===--------------------------------------------------------------------------------------------------------===//
// Shared by linear and linear_input_grad
//===--------------------------------------------------------------------------------------------------------===//

// The epilogue takes the product and the extras, all rows of one type, and yields the results.
static LogicalResult verifyProduct(Operation *op, RowsType in, RankedTensorType weight, int inDim, OperandRange extras,
                                   Region &epilogue) {
  if (weight.getRank() != 2)
    return op->emitOpError("weight must have two dimensions, found ") << weight;
  if (in.getFeatures() != weight.getDimSize(inDim))
    return op->emitOpError("rows have ") << in.getFeatures() << " features, weight " << weight << " takes "
                                         << weight.getDimSize(inDim);
  if (failed(verifyOneElementType(op)))
    return failure();
  auto out = RowsType::get(op->getContext(), in.getSet(), {weight.getDimSize(1 - inDim)}, in.getElementType());
  for (Type type : op->getResultTypes())
    if (type != out)
      return op->emitOpError("result must be ") << out << ", found " << type;
  if (epilogue.empty()) {
    if (!extras.empty() || op->getNumResults() != 1)
      return op->emitOpError("without an epilogue there are no extras and one result");
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
    if (!isa<AddOp, MultiplyOp, ActivationOp, ActivationGradOp, DropoutOp, YieldOp>(nested))
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

static LogicalResult finish(const xfc_shape &shape, Tensor product, ArrayRef<Tensor> extras, Region &epilogue,
                            SmallVectorImpl<Tensor> &results) {
  if (epilogue.empty()) {
    results.push_back(std::move(product));
    return success();
  }
  SmallVector<Tensor> arguments = {std::move(product)};
  arguments.append(extras.begin(), extras.end());
  return evaluateRegion(shape, epilogue, arguments, results);
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

static Tensor linear(const Tensor &x, const Tensor &weight, const Tensor *bias) {
  Tensor y{{x.shape[0], weight.shape[0]}, {}};
  y.data.assign(x.shape[0] * weight.shape[0], 0.0);
  for (int64_t i = 0; i < x.shape[0]; ++i)
    for (int64_t o = 0; o < weight.shape[0]; ++o) {
      double sum = bias ? bias->data[o] : 0;
      for (int64_t k = 0; k < weight.shape[1]; ++k)
        sum += x.row(i)[k] * weight.row(o)[k];
      y.row(i)[o] = sum;
    }
  return y;
}

LogicalResult LinearOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor y = linear(rounded(operands[0], getCompute()), rounded(operands[1], getCompute()),
                    getBias() ? &operands[2] : nullptr);
  return finish(shape, std::move(y), operands.drop_front(getBias() ? 3 : 2), getEpilogue(), results);
}

void LinearOp::lowerPlain(PlainBuilder &b) {
  Value y = b.result(0);
  if (getBias())
    b.generic("j->ij", b.operand(2), y, [](auto v) { return v[0]; });
  else
    b.fill(y, 0);
  b.generic("ik,jk->ij", {b.operand(0), b.operand(1)}, y, [](auto v) { return v[2] + v[0] * v[1]; });
}

// dx, dW and db of y = x W^T + b from dy.
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
    return emitOpError("has an epilogue; differentiation comes before epilogues are fused");
  if (Value dy = gradients.of(getResult(0)))
    differentiateLinear(builder, getLoc(), gradients, dy, getX(), getWeight(), getBias(), getComputeAttr());
  return success();
}

LogicalResult LinearInputGradOp::verify() {
  return verifyProduct(*this, getDy().getType(), getWeight().getType(), 0, getExtras(), getEpilogue());
}

LogicalResult LinearInputGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                          SmallVectorImpl<Tensor> &results) {
  const Tensor dy = rounded(operands[0], getCompute()), weight = rounded(operands[1], getCompute());
  Tensor dx{{dy.shape[0], weight.shape[1]}, {}};
  dx.data.assign(dy.shape[0] * weight.shape[1], 0.0);
  for (int64_t i = 0; i < dy.shape[0]; ++i)
    for (int64_t o = 0; o < weight.shape[0]; ++o)
      for (int64_t k = 0; k < weight.shape[1]; ++k)
        dx.row(i)[k] += dy.row(i)[o] * weight.row(o)[k];
  return finish(shape, std::move(dx), operands.drop_front(2), getEpilogue(), results);
}

void LinearInputGradOp::lowerPlain(PlainBuilder &b) {
  b.fill(b.result(0), 0);
  b.generic("ij,jk->ik", {b.operand(0), b.operand(1)}, b.result(0), [](auto v) { return v[2] + v[0] * v[1]; });
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

LogicalResult LinearWeightGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                           SmallVectorImpl<Tensor> &results) {
  const Tensor &unrounded = operands[0], dy = rounded(unrounded, getCompute()), x = rounded(operands[1], getCompute());
  Tensor dw = zeros(shape, getDweight().getType());
  for (int64_t i = 0; i < dy.shape[0]; ++i)
    for (int64_t o = 0; o < dw.shape[0]; ++o)
      for (int64_t k = 0; k < dw.shape[1]; ++k)
        dw.row(o)[k] += dy.row(i)[o] * x.row(i)[k];
  results.push_back(std::move(dw));
  if (!getDbias())
    return success();
  Tensor db = zeros(shape, getDbias().getType());
  for (int64_t i = 0; i < dy.shape[0]; ++i)
    for (size_t f = 0; f < db.data.size(); ++f)
      db.data[f] += unrounded.row(i)[f];
  results.push_back(std::move(db));
  return success();
}

void LinearWeightGradOp::lowerPlain(PlainBuilder &b) {
  b.fill(b.result(0), 0);
  b.generic("ij,ik->jk", {b.operand(0), b.operand(1)}, b.result(0), [](auto v) { return v[2] + v[0] * v[1]; });
  if (!getDbias())
    return;
  b.fill(b.result(1), 0);
  b.generic("ij->j", b.operand(0), b.result(1), [](auto v) { return v[1] + v[0]; });
}

//===--------------------------------------------------------------------------------------------------------===//
// Views of rows: split, join
//===--------------------------------------------------------------------------------------------------------===//

// The parts of split and join must add up to the whole.
static LogicalResult verifyParts(Operation *op, RowsType whole, TypeRange parts) {
  if (parts.empty())
    return op->emitOpError("needs a part");
  int64_t features = 0;
  for (Type type : parts) {
    auto part = cast<RowsType>(type);
    if (part.getSet() != whole.getSet() || part.getElementType() != whole.getElementType())
      return op->emitOpError("parts and whole must be rows of one set and element type");
    features += part.getFeatures();
  }
  if (features != whole.getFeatures())
    return op->emitOpError("parts have ") << features << " features together, the whole " << whole.getFeatures();
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

LogicalResult SplitOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  int64_t offset = 0;
  for (Type type : getResultTypes()) {
    Tensor part = zeros(shape, type);
    for (int64_t i = 0; i < part.shape[0]; ++i)
      std::copy_n(operands[0].row(i) + offset, part.features(), part.row(i));
    offset += part.features();
    results.push_back(std::move(part));
  }
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

LogicalResult JoinOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor whole = zeros(shape, getType());
  int64_t offset = 0;
  for (const Tensor &part : operands) {
    for (int64_t i = 0; i < whole.shape[0]; ++i)
      std::copy_n(part.row(i), part.features(), whole.row(i) + offset);
    offset += part.features();
  }
  results.push_back(std::move(whole));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// Views of parameters: concat, slice
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult ConcatOp::verify() {
  if (getParts().empty())
    return emitOpError("needs a part");
  int64_t rows = 0;
  for (Value part : getParts()) {
    auto type = cast<RankedTensorType>(part.getType());
    if (type.getRank() == 0 || type.getShape().drop_front() != getType().getShape().drop_front() ||
        type.getElementType() != getType().getElementType())
      return emitOpError("parts and result may differ in their first dimension only, found ")
             << type << " and " << getType();
    rows += type.getDimSize(0);
  }
  if (rows != getType().getDimSize(0))
    return emitOpError("parts have ") << rows << " rows together, the result " << getType().getDimSize(0);
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) { return getParts().size() == 1 ? getParts()[0] : OpFoldResult(); }

LogicalResult ConcatOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor whole = zeros(shape, getType());
  auto end = whole.data.begin();
  for (const Tensor &part : operands)
    end = std::copy(part.data.begin(), part.data.end(), end);
  results.push_back(std::move(whole));
  return success();
}

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
    return emitOpError("operand and result may differ in their first dimension only, found ")
           << from << " and " << type;
  auto offset = static_cast<int64_t>(getOffset());
  if (offset < 0 || offset + type.getDimSize(0) > from.getDimSize(0))
    return emitOpError("takes rows ") << offset << " to " << offset + type.getDimSize(0) << " of "
                                      << from.getDimSize(0);
  return success();
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

LogicalResult SliceOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor part = zeros(shape, getType());
  std::copy_n(operands[0].row(getOffset()), part.data.size(), part.data.begin());
  results.push_back(std::move(part));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// linear_cross_entropy
//===--------------------------------------------------------------------------------------------------------===//

// `logits` is the result with a feature for each word, `numbers` those with one number a row.
template <typename Op> static LogicalResult verifyLinearLoss(Op op, RowsType logits, ArrayRef<RowsType> numbers) {
  RankedTensorType weight = op.getWeight().getType();
  if (weight.getRank() != 2 || weight.getDimSize(1) != op.getX().getType().getFeatures())
    return op.emitOpError("weight must be [vocabulary, ") << op.getX().getType().getFeatures() << "], found " << weight;
  if (logits.getFeatures() != weight.getDimSize(0))
    return op.emitOpError("logits must have ") << weight.getDimSize(0) << " features, found " << logits;
  if (op.getBias() && op.getBias().getType().getShape() != weight.getShape().take_front())
    return op.emitOpError("bias must have ") << weight.getDimSize(0) << " elements, found " << op.getBias().getType();
  return verifyLoss(op, op.getX().getType(), op.getLabels().getType(), numbers);
}

LogicalResult LinearCrossEntropyOp::verify() {
  return verifyLinearLoss(*this, getLogits().getType(), {getLoss().getType(), getNll().getType(), getLse().getType()});
}

LogicalResult LinearCrossEntropyOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                             SmallVectorImpl<Tensor> &results) {
  int64_t rest = getBias() ? 3 : 2;
  Tensor logits = linear(rounded(operands[0], getCompute()), rounded(operands[1], getCompute()),
                         getBias() ? &operands[2] : nullptr);
  SmallVector<Tensor> losses;
  crossEntropy(logits, operands[rest], operands[rest + 1].data[0], losses);
  results.append({losses[0], losses[1], std::move(logits), losses[2]});
  return success();
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

LogicalResult LinearCrossEntropyWithGradOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands,
                                                     SmallVectorImpl<Tensor> &results) {
  int64_t rest = getBias() ? 3 : 2;
  const Tensor &labels = operands[rest], &dloss = operands[rest + 2];
  double smoothing = operands[rest + 1].data[0];
  Tensor logits = linear(rounded(operands[0], getCompute()), rounded(operands[1], getCompute()),
                         getBias() ? &operands[2] : nullptr);
  SmallVector<Tensor> losses;
  crossEntropy(logits, labels, smoothing, losses);
  Tensor dlogits = crossEntropyGrad(std::move(logits), dloss, labels, losses[2], smoothing);
  results.append({losses[0], losses[1], std::move(dlogits)});
  return success();
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
    return emitOpError("tokens must have as many features for each of ")
           << getSlabs() << " slabs, found " << getTokens().getType();
  if (getLse().getType().getFeatures() != getSlabs())
    return emitOpError("lse must have one feature a slab, ") << getSlabs() << ", found " << getLse().getType();
  return verifyCandidates(*this, getX().getType(), getWanted().getType(), getTokens().getType(), getLargest().getType(),
                          getWantedLogit().getType(), getExcluded(), vocabulary);
}

LogicalResult LinearCandidatesOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                           SmallVectorImpl<Tensor> &results) {
  Tensor logits = linear(rounded(operands[0], getCompute()), rounded(operands[1], getCompute()),
                         getBias() ? &operands[2] : nullptr);
  const Tensor &wanted = operands.back();
  Tensor tokens = zeros(shape, getTokens().getType()), largest = zeros(shape, getLargest().getType()),
         lse = zeros(shape, getLse().getType()), wantedLogit = zeros(shape, getWantedLogit().getType());
  for (int64_t i = 0; i < logits.shape[0]; ++i) {
    ArrayRef<double> row(logits.row(i), logits.features());
    for (int64_t slab = 0; slab < getSlabs(); ++slab) {
      const int64_t first = slab * getSlab();
      ArrayRef<double> part = row.slice(first, std::min<int64_t>(getSlab(), row.size() - first));
      largestTokens(part, first, getExcluded(), getCount(), tokens.row(i) + slab * getCount(),
                    largest.row(i) + slab * getCount());
      lse.row(i)[slab] = logSumExp(part.data(), part.size());
    }
    wantedLogit.data[i] = row[static_cast<int64_t>(wanted.data[i])];
  }
  results.append({std::move(tokens), std::move(largest), std::move(lse), std::move(wantedLogit)});
  return success();
}
