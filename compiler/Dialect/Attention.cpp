// Attention, step by step and fused, and the decoding cache: verification and gradients.
#include "Support.h"
#include "Values.h"

using namespace mlir;
using namespace xfc;

// Checks that the heads of the keys are as large as those of the queries, several of which may share one head of the
// keys. `name` is what the messages call the keys' rows.
static LogicalResult verifyKeyHeads(Operation *op, StringRef name, int64_t heads, RowsType queries, RowsType keys) {
  const int64_t dim = queries.getFeatures() / heads, keyHeads = keys.getFeatures() / dim;
  if (keys.getFeatures() % dim || heads % keyHeads)
    return op->emitOpError() << name << " has " << keys.getFeatures() << " features; expected " << dim
                             << " for each of a number of heads that divides " << heads;
  return success();
}

// Checks the rows of queries and of keys that a pairs value relates.
static LogicalResult verifyPairs(Operation *op, StringRef keysName, PairsType pairs, RowsType queries, RowsType keys) {
  if (queries.getSet() != pairs.getQueries())
    return op->emitOpError("queries are rows of ")
           << stringifyRowSet(queries.getSet()) << ", but those of the pairs are rows of "
           << stringifyRowSet(pairs.getQueries());
  if (keys.getSet() != pairs.getKeys())
    return op->emitOpError("keys are rows of ")
           << stringifyRowSet(keys.getSet()) << ", but those of the pairs are rows of "
           << stringifyRowSet(pairs.getKeys());
  if (queries.getFeatures() % pairs.getHeads() != 0)
    return op->emitOpError() << pairs.getHeads() << " heads do not divide " << queries.getFeatures() << " features";
  if (failed(verifyKeyHeads(op, keysName, pairs.getHeads(), queries, keys)))
    return failure();
  return verifyOneElementType(op);
}

//===--------------------------------------------------------------------------------------------------------===//
// scores, combine, combine_transposed
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult ScoresOp::verify() { return verifyPairs(*this, "k", getType(), getQ().getType(), getK().getType()); }

LogicalResult ScoresOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value ds = gradients.of(getResult());
  if (!ds)
    return success();
  if (gradients.wanted(getQ()))
    gradients.add(getQ(), CombineOp::create(builder, getLoc(), getQ().getType(), ds, getK()));
  if (gradients.wanted(getK()))
    gradients.add(getK(), CombineTransposedOp::create(builder, getLoc(), getK().getType(), ds, getQ()));
  return success();
}

LogicalResult CombineOp::verify() { return verifyPairs(*this, "v", getP().getType(), getType(), getV().getType()); }

LogicalResult CombineOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dout = gradients.of(getResult());
  if (!dout)
    return success();
  if (gradients.wanted(getP()))
    gradients.add(getP(), ScoresOp::create(builder, getLoc(), getP().getType(), dout, getV()));
  if (gradients.wanted(getV()))
    gradients.add(getV(), CombineTransposedOp::create(builder, getLoc(), getV().getType(), getP(), dout));
  return success();
}

LogicalResult CombineTransposedOp::verify() {
  return verifyPairs(*this, "the result", getP().getType(), getX().getType(), getType());
}

//===--------------------------------------------------------------------------------------------------------===//
// distance_bias, add_distance_bias, sum_distances
//===--------------------------------------------------------------------------------------------------------===//

// Checks that queries and keys are tokens of the same sequence: only those have distances.
static LogicalResult verifyOneSequence(Operation *op, RowSet queries, RowSet keys) {
  if (keys == queries || (queries == RowSet::target && keys == RowSet::cache))
    return success();
  return op->emitOpError("only has distances within one sequence; queries are rows of ")
         << stringifyRowSet(queries) << ", keys of " << stringifyRowSet(keys);
}

// Checks the shape of a distance bias or of its gradient.
static LogicalResult verifyBias(Operation *op, RankedTensorType bias, int64_t heads) {
  if (bias.getRank() != 2 || bias.getDimSize(1) != 2 * heads)
    return op->emitOpError("bias must be [distances, ") << 2 * heads << "] for " << heads << " heads, found " << bias;
  return success();
}

// Checks that xfc.distance_bias and its gradient share. `table` may be null.
template <typename Op> static LogicalResult verifyDistanceBias(Op op, RankedTensorType table, RankedTensorType bias) {
  if (bias.getRank() != 2 || bias.getDimSize(1) % 2)
    return op.emitOpError("bias must be [distances, heads * 2], found ") << bias;
  if (!table)
    return success();
  if (failed(verifyBias(op, bias, table.getRank() == 2 ? table.getDimSize(1) : 0)))
    return failure();
  const int64_t each = table.getDimSize(0) / (op.getBothDirections() ? 2 : 1);
  if (each < 2 || table.getDimSize(0) % (op.getBothDirections() ? 2 : 1))
    return op.emitOpError("needs two or more buckets for each direction, found ") << table;
  if (static_cast<int64_t>(op.getMaxDistance()) <= each / 2)
    return op.emitOpError("max_distance must be above ") << each / 2 << ", found " << op.getMaxDistance();
  return verifyOneElementType(op);
}

LogicalResult DistanceBiasOp::verify() {
  return verifyDistanceBias(*this, getTable() ? getTable().getType() : RankedTensorType(), getType());
}

LogicalResult DistanceBiasGradOp::verify() { return verifyDistanceBias(*this, getType(), getDy().getType()); }

LogicalResult DistanceBiasOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && getTable() && gradients.wanted(getTable()))
    gradients.add(getTable(), DistanceBiasGradOp::create(builder, getLoc(), getTable().getType(), dy, getMaxDistance(),
                                                         getBothDirections()));
  return success();
}

LogicalResult AddDistanceBiasOp::verify() {
  if (getX().getType() != getType())
    return emitOpError("x and result must have the same type");
  PairsType pairs = getType();
  if (failed(verifyOneSequence(*this, pairs.getQueries(), pairs.getKeys())) ||
      failed(verifyBias(*this, getBias().getType(), pairs.getHeads())))
    return failure();
  return verifyOneElementType(*this);
}

LogicalResult AddDistanceBiasOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (!dy)
    return success();
  if (gradients.wanted(getX()))
    gradients.add(getX(), dy);
  if (gradients.wanted(getBias())) {
    Type sums =
        RowsType::get(getContext(), getType().getQueries(), {2 * getType().getHeads()}, getType().getElementType());
    Value ofSequences = SumDistancesOp::create(builder, getLoc(), sums, dy);
    gradients.add(getBias(),
                  PositionsGradOp::create(builder, getLoc(), getBias().getType(), ofSequences, /*offset=*/0));
  }
  return success();
}

LogicalResult SumDistancesOp::verify() {
  PairsType pairs = getX().getType();
  if (getType() != RowsType::get(getContext(), pairs.getQueries(), {2 * pairs.getHeads()}, pairs.getElementType()))
    return emitOpError("result must be rows of the queries with ")
           << 2 * pairs.getHeads() << " features, found " << getType();
  if (pairs.getQueries() != pairs.getKeys())
    return emitOpError("needs queries and keys of the same set");
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// mask, softmax
//===--------------------------------------------------------------------------------------------------------===//

// Checks `reach`: how many positions before and after its own a query sees.
static LogicalResult verifyReach(Operation *op, IntegerAttr reach, RowSet queries, RowSet keys) {
  if (!reach)
    return success();
  if (reach.getInt() < 0)
    return op->emitOpError("reach must be at least 0, found ") << reach.getInt();
  return verifyOneSequence(op, queries, keys);
}

LogicalResult MaskOp::verify() {
  PairsType pairs = cast<PairsType>(getType());
  return verifyReach(*this, getReachAttr(), pairs.getQueries(), pairs.getKeys());
}

LogicalResult MaskOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), MaskOp::create(builder, getLoc(), dy.getType(), dy, /*zero=*/true, getReachAttr()));
  return success();
}

LogicalResult SoftmaxOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dp = gradients.of(getResult());
  if (dp && gradients.wanted(getX()))
    gradients.add(getX(), SoftmaxGradOp::create(builder, getLoc(), dp.getType(), dp, getResult()));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// attention
//===--------------------------------------------------------------------------------------------------------===//

static int64_t structureOf(RowsType queries, RowsType keys, bool padding, bool causal, int64_t heads) {
  return PairsType::get(queries.getContext(), queries.getSet(), keys.getSet(), padding, causal, heads,
                        queries.getElementType())
      .getStructure();
}

int64_t AttentionOp::getStructure() {
  return structureOf(getQ().getType(), getK().getType(), getPadding(), getCausal(), getHeads());
}

int64_t AttentionGradOp::getStructure() {
  return structureOf(getQ().getType(), getK().getType(), getPadding(), getCausal(), getHeads());
}

// Checks that xfc.attention and its gradient share.
template <typename Op> static LogicalResult verifyAttention(Op op, RowsType output, RowsType lse) {
  RowsType q = op.getQ().getType().computed(), k = op.getK().getType(), v = op.getV().getType();
  auto heads = static_cast<int64_t>(op.getHeads());
  if (heads <= 0 || q.getFeatures() % heads)
    return op.emitOpError() << heads << " heads do not divide " << q.getFeatures() << " features";
  if (failed(verifyKeyHeads(op, "k", heads, q, k)))
    return failure();
  if (v.getFeatures() % op.getKeyHeads())
    return op.emitOpError() << op.getKeyHeads() << " heads do not divide " << v.getFeatures() << " features of v";
  if (k.getSet() != v.getSet())
    return op.emitOpError("k and v are rows of different sets");
  const Type values = RowsType::get(op.getContext(), q.getSet(), {heads * op.getValueDim()}, q.getElementType());
  if (output.computed() != values)
    return op.emitOpError("output must be ")
           << values << ", a value for each of " << heads << " heads, found " << output;
  if (lse != RowsType::get(op.getContext(), q.getSet(), {heads}, q.getElementType()))
    return op.emitOpError("lse must be ") << heads << " numbers per row of q, found " << lse;
  if (!PairsType::getChecked([&] { return op.emitOpError(); }, op.getContext(), q.getSet(), k.getSet(), op.getPadding(),
                             op.getCausal(), heads, q.getElementType()))
    return failure();
  if (op.getBias() && (failed(verifyOneSequence(op, q.getSet(), k.getSet())) ||
                       failed(verifyBias(op, cast<RankedTensorType>(op.getBias().getType()), heads))))
    return failure();
  if (failed(verifyReach(op, op.getReachAttr(), q.getSet(), k.getSet())))
    return failure();
  double rate = op.getRate().convertToDouble();
  if (!(rate >= 0 && rate < 1))
    return op.emitOpError("rate must be at least 0 and less than 1, found ") << rate;
  return verifyOneElementType(op);
}

// Checks that rows have one scale for each head if, and only if, they are integers.
static LogicalResult verifyScale(AttentionOp op, StringRef name, RowsType rows, Value scale) {
  if (rows.getElementType().isFloat())
    return scale ? op.emitOpError() << name << " is scaled, but holds no integers: " << rows : success();
  const Type expected = RowsType::get(op.getContext(), rows.getSet(), {op.getKeyHeads()},
                                      op.getQ().getType().computed().getElementType());
  if (!scale)
    return op.emitOpError() << name << " holds integers and needs scales, " << expected;
  if (scale.getType() != expected)
    return op.emitOpError() << "the scales of " << name << " must be " << expected << ", found " << scale.getType();
  return success();
}

LogicalResult AttentionOp::verify() {
  if (!getKScale() != !getVScale())
    return emitOpError("has scales of one of k and v, expected those of both or of none");
  if (failed(verifyAttention(*this, getResult().getType(), getLse().getType())) ||
      failed(verifyScale(*this, "k", getK().getType(), getKScale())) ||
      failed(verifyScale(*this, "v", getV().getType(), getVScale())))
    return failure();
  auto weights = getWeights() ? cast<PairsType>(getWeights().getType()) : PairsType();
  if (weights && (weights.getStructure() != getStructure() || weights.getHeads() != static_cast<int64_t>(getHeads())))
    return emitOpError("weights have a different structure: ") << weights;
  return success();
}

LogicalResult AttentionGradOp::verify() {
  if (getDq().getType().computed() != getQ().getType().computed() ||
      getDk().getType().computed() != getK().getType().computed() ||
      getDv().getType().computed() != getV().getType().computed())
    return emitOpError("dq, dk and dv must have the types of q, k and v");
  if (getDoutput().getType().computed() != getOutput().getType().computed())
    return emitOpError("doutput and output must have the same type");
  const Type sums = RowsType::get(getContext(), getQ().getType().getSet(), {2 * static_cast<int64_t>(getHeads())},
                                  getQ().getType().computed().getElementType());
  if (getDbias() && (!getBias() || getDbias().getType() != sums))
    return emitOpError("dbias needs a bias, and must be ") << sums << ", found " << getDbias().getType();
  return verifyAttention(*this, getOutput().getType(), getLse().getType());
}

LogicalResult AttentionOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dout = gradients.of(getResult());
  if (getWeights() && gradients.of(getWeights()))
    return emitOpError("the returned weights cannot be differentiated");
  if (getKScale() || getVScale())
    return emitOpError("keys and values in integers have no gradient");
  if (!dout)
    return success();
  SmallVector<Value> operands{dout, getQ(), getK(), getV(), getResult(), getLse()};
  SmallVector<Type> types{getQ().getType(), getK().getType(), getV().getType()};
  if (getBias())
    operands.push_back(getBias());
  const bool wantsBias = getBias() && gradients.wanted(getBias());
  if (wantsBias)
    types.push_back(RowsType::get(getContext(), getQ().getType().getSet(), {2 * static_cast<int64_t>(getHeads())},
                                  getQ().getType().getElementType()));
  SmallVector<NamedAttribute> attributes(llvm::make_filter_range(
      (*this)->getAttrs(), [&](NamedAttribute a) { return a.getName() != getOperandSegmentSizesAttrName(); }));
  auto grad = AttentionGradOp::create(builder, getLoc(), types, operands, attributes);
  gradients.add(getQ(), gradients.wanted(getQ()) ? grad.getDq() : Value());
  gradients.add(getK(), gradients.wanted(getK()) ? grad.getDk() : Value());
  gradients.add(getV(), gradients.wanted(getV()) ? grad.getDv() : Value());
  if (wantsBias)
    gradients.add(getBias(), PositionsGradOp::create(builder, getLoc(), getBias().getType(), grad.getDbias(),
                                                     /*offset=*/0));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// quantize
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult QuantizeOp::verify() {
  const RowsType x = getX().getType(), result = getResult().getType();
  const Type element = result.getElementType();
  const std::optional<DType> type = dtypeOf(element);
  if (result != x.in(element) || !type || !isNarrow(*type))
    return emitOpError("the result must have the rows of x in a narrower type, found ") << x << " and " << result;
  const auto groups = static_cast<int64_t>(getGroups());
  if (groups < 1 || x.getFeatures() % groups)
    return emitOpError() << groups << " groups do not divide " << x.getFeatures() << " features";
  const Type scales = RowsType::get(getContext(), x.getSet(), {groups}, x.computed().getElementType());
  if (element.isFloat() && getScale())
    return emitOpError() << "rows of " << element << " have no scales";
  if (!element.isFloat() && (!getScale() || getScale().getType() != scales))
    return emitOpError() << "rows of " << element << " need scales, " << scales;
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// cache_write
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult CacheWriteOp::verify() {
  if (getCache().getType().getSet() != RowSet::cache || getCache().getType() != getType())
    return emitOpError("operand and result must be rows of the cache, found ")
           << getCache().getType() << " and " << getType();
  if (getRows().getType().getFeatures() != getType().getFeatures())
    return emitOpError("rows have ") << getRows().getType().getFeatures() << " features, the cache "
                                     << getType().getFeatures();
  if (getRows().getType().getSet() != RowSet::target)
    return emitOpError("rows must be rows of the target, found ") << getRows().getType();
  if (getRows().getType().getElementType().isFloat() != getType().getElementType().isFloat())
    return emitOpError("rows of ") << getRows().getType().getElementType() << " cannot be kept in a cache of "
                                   << getType().getElementType() << "; see xfc.quantize";
  return verifyOneElementType(*this);
}
