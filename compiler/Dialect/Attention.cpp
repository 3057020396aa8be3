// Attention, step by step and fused, and the decoding cache: definitions, f64 semantics and gradients.
#include "PlainBuilder.h"
#include "Support.h"
#include <cmath>

using namespace mlir;
using namespace xfc;

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += a[i] * b[i];
  return sum;
}

// Rows of queries and of keys that a pairs value relates.
static LogicalResult verifyPairs(Operation *op, PairsType pairs, RowsType queries, RowsType keys) {
  if (queries && queries.getSet() != pairs.getQueries())
    return op->emitOpError("queries are rows of ")
           << stringifyRowSet(queries.getSet()) << ", the pairs' of " << stringifyRowSet(pairs.getQueries());
  if (keys && keys.getSet() != pairs.getKeys())
    return op->emitOpError("keys are rows of ")
           << stringifyRowSet(keys.getSet()) << ", the pairs' of " << stringifyRowSet(pairs.getKeys());
  for (RowsType rows : {queries, keys})
    if (rows && rows.getFeatures() % pairs.getHeads() != 0)
      return op->emitOpError() << pairs.getHeads() << " heads do not divide " << rows.getFeatures() << " features";
  return verifyOneElementType(op);
}

//===--------------------------------------------------------------------------------------------------------===//
// scores, combine, combine_transposed
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult ScoresOp::verify() {
  if (getQ().getType().getFeatures() != getK().getType().getFeatures())
    return emitOpError("q has ") << getQ().getType().getFeatures() << " features, k " << getK().getType().getFeatures();
  return verifyPairs(*this, getType(), getQ().getType(), getK().getType());
}

LogicalResult ScoresOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor s = zeros(shape, getType());
  const int64_t heads = getType().getHeads(), width = operands[0].features() / heads;
  forEachPair(shape, getType().getQueries(), getType().getStructure(), [&](const Pair &pair) {
    for (int64_t h = 0; h < heads; ++h)
      s.data[pair.element(h, heads)] =
          dot(operands[0].row(pair.query) + h * width, operands[1].row(pair.key) + h * width, width);
  });
  results.push_back(std::move(s));
  return success();
}

void ScoresOp::lowerPlain(PlainBuilder &b) {
  const int64_t heads = getType().getHeads(), width = getQ().getType().getFeatures() / heads;
  Value q = b.operand(0), k = b.operand(1, PlainBuilder::Of::Keys), s = b.result(0);
  b.forEachHead(getType(), [&](const PlainBuilder::Head &head) {
    Value block = head.of(s);
    b.fill(block, 0);
    b.generic("ik,j->ij", {head.rowsOf(q, heads), head.keyRows()}, block,
              [&](auto v) { return v[2] + v[0] * b.load(k, {v[1], head.head * width + b.loop('k')}); });
  });
}

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

LogicalResult CombineOp::verify() {
  if (getType().getFeatures() != getV().getType().getFeatures())
    return emitOpError("v has ") << getV().getType().getFeatures() << " features, the result "
                                 << getType().getFeatures();
  return verifyPairs(*this, getP().getType(), getType(), getV().getType());
}

LogicalResult CombineOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor o = zeros(shape, getType());
  PairsType pairs = getP().getType();
  const int64_t heads = pairs.getHeads(), width = o.features() / heads;
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    for (int64_t f = 0; f < o.features(); ++f)
      o.row(pair.query)[f] += operands[0].data[pair.element(f / width, heads)] * operands[1].row(pair.key)[f];
  });
  results.push_back(std::move(o));
  return success();
}

void CombineOp::lowerPlain(PlainBuilder &b) {
  const int64_t heads = getP().getType().getHeads(), width = getType().getFeatures() / heads;
  Value p = b.operand(0), v = b.operand(1, PlainBuilder::Of::Keys), o = b.result(0);
  b.forEachHead(getP().getType(), [&](const PlainBuilder::Head &head) {
    Value sums = head.rowsOf(o, heads);
    b.fill(sums, 0);
    b.generic("ij,j->ik", {head.of(p), head.keyRows()}, sums,
              [&](auto at) { return at[2] + at[0] * b.load(v, {at[1], head.head * width + b.loop('k')}); });
  });
}

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
  if (getType().getFeatures() != getX().getType().getFeatures())
    return emitOpError("x has ") << getX().getType().getFeatures() << " features, the result "
                                 << getType().getFeatures();
  return verifyPairs(*this, getP().getType(), getX().getType(), getType());
}

LogicalResult CombineTransposedOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                            SmallVectorImpl<Tensor> &results) {
  Tensor y = zeros(shape, getType());
  PairsType pairs = getP().getType();
  const int64_t heads = pairs.getHeads(), width = y.features() / heads;
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    for (int64_t f = 0; f < y.features(); ++f)
      y.row(pair.key)[f] += operands[0].data[pair.element(f / width, heads)] * operands[1].row(pair.query)[f];
  });
  results.push_back(std::move(y));
  return success();
}

void CombineTransposedOp::lowerPlain(PlainBuilder &b) {
  const int64_t heads = getP().getType().getHeads(), width = getType().getFeatures() / heads;
  Value p = b.operand(0), x = b.operand(1), y = b.result(0, PlainBuilder::Of::Keys);
  b.fill(y, 0);
  b.forEachHead(getP().getType(), [&](const PlainBuilder::Head &head) {
    Value block = head.of(p), rows = head.rowsOf(x, heads), keyRows = head.keyRows();
    b.forEach(head.keys, [&](const Number &j) {
      Value sums = b.slice(y, {b.load(keyRows, {j}), {head.head * width, width}});
      b.generic("i,ik->k", {b.slice(block, {Cut::all(), j}), rows}, sums, [](auto v) { return v[2] + v[0] * v[1]; });
    });
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// scale, mask, softmax
//===--------------------------------------------------------------------------------------------------------===//

int64_t ScaleOp::getInPlaceOperand(unsigned) { return 0; }

OpFoldResult ScaleOp::fold(FoldAdaptor) { return getFactor().isExactlyValue(1) ? getX() : OpFoldResult(); }

LogicalResult ScaleOp::evaluate(const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  for (double &value : y.data)
    value *= getFactor().convertToDouble();
  results.push_back(std::move(y));
  return success();
}

void ScaleOp::lowerPlain(PlainBuilder &b) {
  b.elementwise(b.operand(0), b.result(0), [&](auto v) { return getFactor().convertToDouble() * v[0]; });
}

LogicalResult ScaleOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), ScaleOp::create(builder, getLoc(), dy.getType(), dy, getFactor()));
  return success();
}

int64_t MaskOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult MaskOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  auto pairs = cast<PairsType>(getType());
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    for (int64_t h = 0; h < pairs.getHeads(); ++h)
      if (!pair.visible)
        y.data[pair.element(h, pairs.getHeads())] = getZero() ? 0 : -INFINITY;
  });
  results.push_back(std::move(y));
  return success();
}

void MaskOp::lowerPlain(PlainBuilder &b) {
  Value x = b.operand(0), y = b.result(0);
  b.forEachHead(cast<PairsType>(getType()), [&](const PlainBuilder::Head &head) {
    b.generic("ij,i->ij", {head.of(x), head.limits()}, head.of(y),
              [&](auto v) { return select(b.loop('j') < v[1], v[0], getZero() ? 0 : -INFINITY); });
  });
}

LogicalResult MaskOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dy = gradients.of(getResult());
  if (dy && gradients.wanted(getX()))
    gradients.add(getX(), MaskOp::create(builder, getLoc(), dy.getType(), dy, /*zero=*/true));
  return success();
}

// The numbers of one query and head are consecutive: calls `visit` with the first and how many there are.
static void forEachScoreRow(const xfc_shape &shape, PairsType pairs, Tensor &tensor,
                            llvm::function_ref<void(int64_t, int64_t)> visit) {
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    if (pair.index == 0)
      for (int64_t h = 0; h < pairs.getHeads(); ++h)
        visit(pair.element(h, pairs.getHeads()), pair.count);
  });
}

int64_t SoftmaxOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult SoftmaxOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results) {
  Tensor p = operands[0];
  forEachScoreRow(shape, cast<PairsType>(getType()), p, [&](int64_t first, int64_t count) {
    double *row = p.data.data() + first, largest = *std::max_element(row, row + count), sum = 0;
    for (int64_t j = 0; j < count; ++j)
      sum += row[j] = largest == -INFINITY ? 0 : std::exp(row[j] - largest);
    for (int64_t j = 0; j < count; ++j)
      row[j] = sum > 0 ? row[j] / sum : 0;
  });
  results.push_back(std::move(p));
  return success();
}

void SoftmaxOp::lowerPlain(PlainBuilder &b) {
  Value scores = b.operand(0), probabilities = b.result(0);
  b.forEachHead(cast<PairsType>(getType()), [&](const PlainBuilder::Head &head) {
    Value from = head.of(scores), to = head.of(probabilities);
    b.forEach(head.rows, [&](const Number &i) {
      Value x = b.slice(from, {i}), p = b.slice(to, {i});
      Number largest = b.reduce("j->", x, -INFINITY, [](auto v) { return max(v[0], v[1]); });
      b.elementwise(x, p, [&](auto v) { return exp(v[0] - largest); });
      // Of a row of nothing but minus infinity the sum is NaN, which is not above 0.
      Number sum = b.reduce("j->", p, 0, [](auto v) { return v[1] + v[0]; });
      b.elementwise(p, p, [&](auto v) { return select(sum > 0, v[0] / sum, 0); });
    });
  });
}

LogicalResult SoftmaxOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dp = gradients.of(getResult());
  if (dp && gradients.wanted(getX()))
    gradients.add(getX(), SoftmaxGradOp::create(builder, getLoc(), dp.getType(), dp, getResult()));
  return success();
}

int64_t SoftmaxGradOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult SoftmaxGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                      SmallVectorImpl<Tensor> &results) {
  Tensor ds = operands[0];
  forEachScoreRow(shape, cast<PairsType>(getType()), ds, [&](int64_t first, int64_t count) {
    double *row = ds.data.data() + first;
    const double *p = operands[1].data.data() + first, sum = dot(p, row, count);
    for (int64_t j = 0; j < count; ++j)
      row[j] = p[j] * (row[j] - sum);
  });
  results.push_back(std::move(ds));
  return success();
}

void SoftmaxGradOp::lowerPlain(PlainBuilder &b) {
  Value upstream = b.operand(0), probabilities = b.operand(1), downstream = b.result(0);
  b.forEachHead(cast<PairsType>(getType()), [&](const PlainBuilder::Head &head) {
    Value dps = head.of(upstream), ps = head.of(probabilities), dss = head.of(downstream);
    b.forEach(head.rows, [&](const Number &i) {
      Value dp = b.slice(dps, {i}), p = b.slice(ps, {i});
      Number sum = b.reduce("j,j->", {dp, p}, 0, [](auto v) { return v[2] + v[0] * v[1]; });
      b.elementwise({dp, p}, b.slice(dss, {i}), [&](auto v) { return v[1] * (v[0] - sum); });
    });
  });
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

// What attention and its gradient have in common.
template <typename Op> static LogicalResult verifyAttention(Op op, RowsType output, RowsType lse) {
  RowsType q = op.getQ().getType(), k = op.getK().getType(), v = op.getV().getType();
  auto heads = static_cast<int64_t>(op.getHeads());
  if (heads <= 0 || q.getFeatures() % heads || v.getFeatures() % heads)
    return op.emitOpError() << heads << " heads do not divide " << q.getFeatures() << " and " << v.getFeatures()
                            << " features";
  if (q.getFeatures() != k.getFeatures())
    return op.emitOpError("q has ") << q.getFeatures() << " features, k " << k.getFeatures();
  if (k.getSet() != v.getSet())
    return op.emitOpError("k and v are rows of different sets");
  if (output != RowsType::get(op.getContext(), q.getSet(), {v.getFeatures()}, q.getElementType()))
    return op.emitOpError("output must be rows of q with the features of v, found ") << output;
  if (lse != RowsType::get(op.getContext(), q.getSet(), {heads}, q.getElementType()))
    return op.emitOpError("lse must be ") << heads << " numbers a row of q, found " << lse;
  if (!PairsType::getChecked([&] { return op.emitOpError(); }, op.getContext(), q.getSet(), k.getSet(), op.getPadding(),
                             op.getCausal(), heads, q.getElementType()))
    return failure();
  double rate = op.getRate().convertToDouble();
  if (!(rate >= 0 && rate < 1))
    return op.emitOpError("rate must be at least 0 and less than 1, found ") << rate;
  return verifyOneElementType(op);
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this, getResult().getType(), getLse().getType())))
    return failure();
  auto weights = getWeights() ? cast<PairsType>(getWeights().getType()) : PairsType();
  if (weights && (weights.getStructure() != getStructure() || weights.getHeads() != static_cast<int64_t>(getHeads())))
    return emitOpError("weights are of another structure: ") << weights;
  return success();
}

LogicalResult AttentionGradOp::verify() {
  if (getDq().getType() != getQ().getType() || getDk().getType() != getK().getType() ||
      getDv().getType() != getV().getType())
    return emitOpError("dq, dk and dv must have the types of q, k and v");
  if (getDoutput().getType() != getOutput().getType())
    return emitOpError("doutput and output must have one type");
  return verifyAttention(*this, getOutput().getType(), getLse().getType());
}

namespace {
// Recomputes what attention computes, pair by pair: for the operator and its gradient.
struct AttentionReference {
  const xfc_shape &shape;
  RowSet queries, keys;
  int64_t structure, heads, id;
  double scale, rate;

  double score(const Pair &pair, int64_t h, const Tensor &q, const Tensor &k) const {
    int64_t width = q.features() / heads;
    return scale * dot(q.row(pair.query) + h * width, k.row(pair.key) + h * width, width);
  }
  double factor(const Pair &pair, int64_t h) const {
    const xfc_rows &rows = shape.sets[static_cast<int>(queries)];
    return dropoutFactor(shape, rate, id, rows.sentences[pair.sequence], rows.positions[pair.query],
                         shape.sets[static_cast<int>(keys)].positions[pair.key], 1 + h);
  }
  // Visits the visible pairs only.
  void forEach(llvm::function_ref<void(const Pair &, int64_t h)> visit) const {
    forEachPair(shape, queries, structure, [&](const Pair &pair) {
      for (int64_t h = 0; h < heads && pair.visible; ++h)
        visit(pair, h);
    });
  }
};
} // namespace

LogicalResult AttentionOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                    SmallVectorImpl<Tensor> &results) {
  const Tensor q = rounded(operands[0], getCompute()), k = rounded(operands[1], getCompute()),
               v = rounded(operands[2], getCompute());
  AttentionReference reference{shape,
                               getQ().getType().getSet(),
                               getK().getType().getSet(),
                               getStructure(),
                               static_cast<int64_t>(getHeads()),
                               static_cast<int64_t>(getId()),
                               getScale().convertToDouble(),
                               getRate().convertToDouble()};
  Tensor o = zeros(shape, getResult().getType()), lse = zeros(shape, getLse().getType()), weights;
  if (getWeights())
    weights = zeros(shape, getWeights().getType());
  Tensor largest = lse, sum = lse;
  largest.data.assign(largest.data.size(), -INFINITY);
  reference.forEach([&](const Pair &pair, int64_t h) {
    double &m = largest.row(pair.query)[h];
    m = std::max(m, reference.score(pair, h, q, k));
  });
  reference.forEach([&](const Pair &pair, int64_t h) {
    sum.row(pair.query)[h] += std::exp(reference.score(pair, h, q, k) - largest.row(pair.query)[h]);
  });
  for (size_t i = 0; i < lse.data.size(); ++i)
    lse.data[i] = sum.data[i] > 0 ? largest.data[i] + std::log(sum.data[i]) : 0;
  const int64_t width = v.features() / reference.heads;
  reference.forEach([&](const Pair &pair, int64_t h) {
    double p = std::exp(reference.score(pair, h, q, k) - lse.row(pair.query)[h]);
    if (getWeights())
      weights.data[pair.element(h, reference.heads)] = p;
    for (int64_t f = h * width; f < (h + 1) * width; ++f)
      o.row(pair.query)[f] += p * reference.factor(pair, h) * v.row(pair.key)[f];
  });
  results.append({std::move(o), std::move(lse)});
  if (getWeights())
    results.push_back(std::move(weights));
  return success();
}

LogicalResult AttentionOp::differentiate(OpBuilder &builder, Gradients &gradients) {
  Value dout = gradients.of(getResult());
  if (getWeights() && gradients.of(getWeights()))
    return emitOpError("the returned weights cannot be differentiated");
  if (!dout)
    return success();
  auto grad =
      AttentionGradOp::create(builder, getLoc(), TypeRange{getQ().getType(), getK().getType(), getV().getType()},
                              ValueRange{dout, getQ(), getK(), getV(), getResult(), getLse()}, (*this)->getAttrs());
  gradients.add(getQ(), gradients.wanted(getQ()) ? grad.getDq() : Value());
  gradients.add(getK(), gradients.wanted(getK()) ? grad.getDk() : Value());
  gradients.add(getV(), gradients.wanted(getV()) ? grad.getDv() : Value());
  return success();
}

// With p the probabilities before and z those after dropout: dv = z^T do, dz = do v^T, dp = factor dz,
// ds = p (dp - sum over keys of p dp), dq = scale ds k, dk = scale ds^T q. The sum equals do . o of the head.
LogicalResult AttentionGradOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                        SmallVectorImpl<Tensor> &results) {
  const Tensor dout = rounded(operands[0], getCompute()), q = rounded(operands[1], getCompute()),
               k = rounded(operands[2], getCompute()), v = rounded(operands[3], getCompute());
  const Tensor &o = operands[4], &lse = operands[5];
  AttentionReference reference{shape,
                               getQ().getType().getSet(),
                               getK().getType().getSet(),
                               getStructure(),
                               static_cast<int64_t>(getHeads()),
                               static_cast<int64_t>(getId()),
                               getScale().convertToDouble(),
                               getRate().convertToDouble()};
  Tensor dq = zeros(shape, getDq().getType()), dk = zeros(shape, getDk().getType()),
         dv = zeros(shape, getDv().getType());
  const int64_t keyWidth = q.features() / reference.heads, valueWidth = v.features() / reference.heads;
  reference.forEach([&](const Pair &pair, int64_t h) {
    double p = std::exp(reference.score(pair, h, q, k) - lse.row(pair.query)[h]), factor = reference.factor(pair, h);
    const double *dorow = dout.row(pair.query) + h * valueWidth;
    for (int64_t f = 0; f < valueWidth; ++f)
      dv.row(pair.key)[h * valueWidth + f] += p * factor * dorow[f];
    double dp = factor * dot(dorow, v.row(pair.key) + h * valueWidth, valueWidth);
    double ds = reference.scale * p * (dp - dot(dorow, o.row(pair.query) + h * valueWidth, valueWidth));
    for (int64_t f = h * keyWidth; f < (h + 1) * keyWidth; ++f) {
      dq.row(pair.query)[f] += ds * k.row(pair.key)[f];
      dk.row(pair.key)[f] += ds * q.row(pair.query)[f];
    }
  });
  results.append({std::move(dq), std::move(dk), std::move(dv)});
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
  return verifyOneElementType(*this);
}

int64_t CacheWriteOp::getInPlaceOperand(unsigned) { return 0; }

LogicalResult CacheWriteOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                     SmallVectorImpl<Tensor> &results) {
  Tensor cache = operands[0];
  for (int64_t h = 0; h < operands[1].shape[0]; ++h)
    std::copy_n(operands[1].row(h), cache.features(), cache.row(shape.slots[h]));
  results.push_back(std::move(cache));
  return success();
}

void CacheWriteOp::lowerPlain(PlainBuilder &b) {
  Value rows = b.operand(1), cache = b.result(0, PlainBuilder::Of::Cache), slots = b.slots();
  b.forEach(b.rowCount(), [&](const Number &h) {
    b.elementwise(b.slice(rows, {h}), b.slice(cache, {b.load(slots, {h})}), [](auto v) { return v[0]; });
  });
}
