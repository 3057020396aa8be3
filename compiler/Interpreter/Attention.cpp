// Defines what attention computes, unfused and fused, and what is written to the decoding cache.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += a[i] * b[i];
  return sum;
}

//===--------------------------------------------------------------------------------------------------------===//
// scores, combine, combine_transposed
//===--------------------------------------------------------------------------------------------------------===//

// The first feature of the key head that query head h, of `heads`, reads. A head has `width` features.
static int64_t keyFeature(const Tensor &keys, int64_t h, int64_t heads, int64_t width) {
  return h * (keys.features() / width) / heads * width;
}

static LogicalResult evaluateOp(ScoresOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor s = zeros(shape, op.getType());
  const int64_t heads = op.getType().getHeads(), width = operands[0].features() / heads;
  forEachPair(shape, op.getType().getQueries(), op.getType().getStructure(), [&](const Pair &pair) {
    for (int64_t h = 0; h < heads; ++h)
      s.data[pair.element(h, heads)] = dot(operands[0].row(pair.query) + h * width,
                                           operands[1].row(pair.key) + keyFeature(operands[1], h, heads, width), width);
  });
  results.push_back(std::move(s));
  return success();
}

static LogicalResult evaluateOp(CombineOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor o = zeros(shape, op.getType());
  PairsType pairs = op.getP().getType();
  const int64_t heads = pairs.getHeads(), width = o.features() / heads;
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t f = 0; f < width; ++f)
        o.row(pair.query)[h * width + f] += operands[0].data[pair.element(h, heads)] *
                                            operands[1].row(pair.key)[keyFeature(operands[1], h, heads, width) + f];
  });
  results.push_back(std::move(o));
  return success();
}

static LogicalResult evaluateOp(CombineTransposedOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = zeros(shape, op.getType());
  PairsType pairs = op.getP().getType();
  const int64_t heads = pairs.getHeads(), width = operands[1].features() / heads;
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t f = 0; f < width; ++f)
        y.row(pair.key)[keyFeature(y, h, heads, width) + f] +=
            operands[0].data[pair.element(h, heads)] * operands[1].row(pair.query)[h * width + f];
  });
  results.push_back(std::move(y));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// distance_bias, add_distance_bias, sum_distances
//===--------------------------------------------------------------------------------------------------------===//

// The bucket of a key `distance` positions after the query. Logarithms are taken in f32, as when models with such a
// table were trained: in another precision, a distance at the border of two buckets could fall on the wrong side.
static int64_t bucketOf(int64_t distance, int64_t buckets, int64_t maxDistance, bool bothDirections) {
  const int64_t each = bothDirections ? buckets / 2 : buckets, exact = each / 2;
  const int64_t first = bothDirections && distance > 0 ? each : 0;
  const int64_t n = bothDirections ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  if (n < exact)
    return first + n;
  const float share = std::log(static_cast<float>(n) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(maxDistance) / static_cast<double>(exact)));
  return first + std::min(each - 1, exact + static_cast<int64_t>(share * static_cast<float>(each - exact)));
}

static double slopeOf(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (power * 2 <= heads)
    power *= 2;
  return head < power ? std::exp2(-8.0 * (head + 1) / power) : std::exp2(-4.0 * (2 * (head - power) + 1) / power);
}

// The number of positions by which the key follows the query; negative if it precedes it.
static int64_t distanceOf(const xfc_shape &shape, const Pair &pair, RowSet queries, RowSet keys) {
  const int64_t query = shape.sets[static_cast<int>(queries)].positions[pair.query];
  // The keys of a hypothesis are its tokens from the first on, whichever slots they occupy.
  const int64_t key = keys == RowSet::cache ? pair.index : shape.sets[static_cast<int>(keys)].positions[pair.key];
  return key - query;
}

// The row of a pair's entry in a bias table, and its feature for head 0.
struct Entry {
  int64_t distance, after;
};
static Entry entryOf(const xfc_shape &shape, const Pair &pair, RowSet queries, RowSet keys) {
  const int64_t distance = distanceOf(shape, pair, queries, keys);
  return {std::abs(distance), distance > 0};
}

// Whether the query sees the key: the key is below the query's limit, and within `reach` if that is given.
static bool isSeen(const xfc_shape &shape, const Pair &pair, RowSet queries, RowSet keys,
                   std::optional<uint64_t> reach) {
  return pair.visible && (!reach || std::abs(distanceOf(shape, pair, queries, keys)) <= static_cast<int64_t>(*reach));
}

static LogicalResult evaluateOp(DistanceBiasOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor bias = zeros(shape, op.getType());
  const int64_t heads = bias.features() / 2;
  for (int64_t t = 0; t < bias.shape[0]; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t after : {0, 1})
        bias.row(t)[2 * h + after] = op.getTable()
                                         ? operands[0].row(bucketOf(after ? t : -t, operands[0].shape[0],
                                                                    op.getMaxDistance(), op.getBothDirections()))[h]
                                         : -slopeOf(h, heads) * t;
  results.push_back(std::move(bias));
  return success();
}

static LogicalResult evaluateOp(DistanceBiasGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor table = zeros(shape, op.getType());
  for (int64_t t = 0; t < operands[0].shape[0]; ++t)
    for (int64_t h = 0; h < table.features(); ++h)
      for (int64_t after : {0, 1})
        table.row(bucketOf(after ? t : -t, table.shape[0], op.getMaxDistance(), op.getBothDirections()))[h] +=
            operands[0].row(t)[2 * h + after];
  results.push_back(std::move(table));
  return success();
}

static LogicalResult evaluateOp(AddDistanceBiasOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  PairsType pairs = op.getType();
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    const Entry entry = entryOf(shape, pair, pairs.getQueries(), pairs.getKeys());
    for (int64_t h = 0; h < pairs.getHeads(); ++h)
      y.data[pair.element(h, pairs.getHeads())] += operands[1].row(entry.distance)[2 * h + entry.after];
  });
  results.push_back(std::move(y));
  return success();
}

static LogicalResult evaluateOp(SumDistancesOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor sums = zeros(shape, op.getType());
  PairsType pairs = op.getX().getType();
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    const Entry entry = entryOf(shape, pair, pairs.getQueries(), pairs.getKeys());
    for (int64_t h = 0; h < pairs.getHeads(); ++h)
      sums.row(pair.query - pair.queryOffset + entry.distance)[2 * h + entry.after] +=
          operands[0].data[pair.element(h, pairs.getHeads())];
  });
  results.push_back(std::move(sums));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// mask, softmax
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(MaskOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = operands[0];
  auto pairs = cast<PairsType>(op.getType());
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    for (int64_t h = 0; h < pairs.getHeads(); ++h)
      if (!isSeen(shape, pair, pairs.getQueries(), pairs.getKeys(), op.getReach()))
        y.data[pair.element(h, pairs.getHeads())] = op.getZero() ? 0 : -INFINITY;
  });
  results.push_back(std::move(y));
  return success();
}

// Calls `visit` for each query and head, whose elements are consecutive, with the first element and their number.
static void forEachScoreRow(const xfc_shape &shape, PairsType pairs, llvm::function_ref<void(int64_t, int64_t)> visit) {
  forEachPair(shape, pairs.getQueries(), pairs.getStructure(), [&](const Pair &pair) {
    if (pair.index == 0)
      for (int64_t h = 0; h < pairs.getHeads(); ++h)
        visit(pair.element(h, pairs.getHeads()), pair.count);
  });
}

static LogicalResult evaluateOp(SoftmaxOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor p = operands[0];
  forEachScoreRow(shape, cast<PairsType>(op.getType()), [&](int64_t first, int64_t count) {
    double *row = p.data.data() + first, largest = *std::max_element(row, row + count), sum = 0;
    for (int64_t j = 0; j < count; ++j)
      sum += row[j] = largest == -INFINITY ? 0 : std::exp(row[j] - largest);
    for (int64_t j = 0; j < count; ++j)
      row[j] = sum > 0 ? row[j] / sum : 0;
  });
  results.push_back(std::move(p));
  return success();
}

static LogicalResult evaluateOp(SoftmaxGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor ds = operands[0];
  forEachScoreRow(shape, cast<PairsType>(op.getType()), [&](int64_t first, int64_t count) {
    double *row = ds.data.data() + first;
    const double *p = operands[1].data.data() + first, sum = dot(p, row, count);
    for (int64_t j = 0; j < count; ++j)
      row[j] = p[j] * (row[j] - sum);
  });
  results.push_back(std::move(ds));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// attention
//===--------------------------------------------------------------------------------------------------------===//

namespace {
// Computes the score and dropout factor of a pair, for attention and its gradient.
struct AttentionReference {
  // `op` is attention or its gradient; `bias` is null if there is none.
  template <typename Op>
  AttentionReference(Op op, const xfc_shape &shape, const Tensor *bias)
      : shape(shape), queries(op.getQ().getType().getSet()), keys(op.getK().getType().getSet()),
        structure(op.getStructure()), heads(op.getHeads()), id(op.getId()), scale(op.getScale().convertToDouble()),
        rate(op.getRate().convertToDouble()), reach(op.getReach()), compute(op.getCompute()), bias(bias) {}

  const xfc_shape &shape;
  RowSet queries, keys;
  int64_t structure, heads, id;
  double scale, rate;
  std::optional<uint64_t> reach;
  std::optional<ComputeType> compute;
  const Tensor *bias;

  // The queries as they are multiplied: scaled, then rounded.
  Tensor scaled(Tensor q) const {
    for (double &x : q.data)
      x *= scale;
    return rounded(std::move(q), compute);
  }
  // `q` are scaled queries.
  double score(const Pair &pair, int64_t h, const Tensor &q, const Tensor &k) const {
    int64_t width = q.features() / heads;
    double score = dot(q.row(pair.query) + h * width, k.row(pair.key) + keyFeature(k, h, heads, width), width);
    if (bias) {
      const Entry entry = entryOf(shape, pair, queries, keys);
      score += bias->row(entry.distance)[2 * h + entry.after];
    }
    return score;
  }
  double factor(const Pair &pair, int64_t h) const {
    const xfc_rows &rows = shape.sets[static_cast<int>(queries)];
    return dropoutFactor(shape, rate, id, rows.sentences[pair.sequence], rows.positions[pair.query],
                         shape.sets[static_cast<int>(keys)].positions[pair.key], 1 + h);
  }
  // Visits only the pairs whose query sees the key.
  void forEach(llvm::function_ref<void(const Pair &, int64_t h)> visit) const {
    forEachPair(shape, queries, structure, [&](const Pair &pair) {
      const bool seen = isSeen(shape, pair, queries, keys, reach);
      for (int64_t h = 0; h < heads && seen; ++h)
        visit(pair, h);
    });
  }
};
} // namespace

// Rows of integers, each part of them times its scale.
static Tensor scaledBy(Tensor rows, const Tensor &scales, const xfc_shape &shape, RowSet set) {
  const int64_t groups = scales.features(), width = rows.features() / groups;
  for (int64_t row = 0; row < shape.sets[static_cast<int>(set)].rows; ++row)
    for (int64_t f = 0; f < groups * width; ++f)
      rows.row(row)[f] *= scales.row(row)[f / width];
  return rows;
}

static LogicalResult evaluateOp(AttentionOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  AttentionReference reference(op, shape, op.getBias() ? &operands[3] : nullptr);
  // The keys or the values, whose scales follow the other operands.
  auto read = [&](unsigned operand, Value scale, size_t place) {
    Tensor rows = operands[operand];
    if (scale)
      rows = scaledBy(std::move(rows), operands[place], shape, op.getK().getType().getSet());
    return rounded(std::move(rows), op.getCompute());
  };
  const size_t scales = op.getBias() ? 4 : 3;
  const Tensor q = reference.scaled(operands[0]), k = read(1, op.getKScale(), scales),
               v = read(2, op.getVScale(), scales + (op.getKScale() ? 1 : 0));
  Tensor o = zeros(shape, op.getResult().getType()), lse = zeros(shape, op.getLse().getType()), weights;
  if (op.getWeights())
    weights = zeros(shape, op.getWeights().getType());
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
  const int64_t width = op.getValueDim();
  reference.forEach([&](const Pair &pair, int64_t h) {
    const double *values = v.row(pair.key) + keyFeature(v, h, reference.heads, width);
    const double score = reference.score(pair, h, q, k);
    if (op.getWeights())
      weights.data[pair.element(h, reference.heads)] = std::exp(score - lse.row(pair.query)[h]);
    const double weight =
        rounded(std::exp(score - largest.row(pair.query)[h]) * reference.factor(pair, h), op.getCompute());
    for (int64_t f = 0; f < width; ++f)
      o.row(pair.query)[h * width + f] += weight / sum.row(pair.query)[h] * values[f];
  });
  results.append({std::move(o), std::move(lse)});
  if (op.getWeights())
    results.push_back(std::move(weights));
  return success();
}

// With p the probabilities before and z those after dropout: dv = z^T do, dz = do v^T, dp = factor dz,
// ds = p (dp - sum over keys of p dp), dq = scale ds k, dk = scale ds^T q. The sum equals do . o of the head.
static LogicalResult evaluateOp(AttentionGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  AttentionReference reference(op, shape, op.getBias() ? &operands[6] : nullptr);
  const Tensor dout = rounded(operands[0], op.getCompute()), q = reference.scaled(operands[1]),
               k = rounded(operands[2], op.getCompute()), v = rounded(operands[3], op.getCompute());
  const Tensor &o = operands[4], &lse = operands[5];
  Tensor dq = zeros(shape, op.getDq().getType()), dk = zeros(shape, op.getDk().getType()),
         dv = zeros(shape, op.getDv().getType()), dbias;
  if (op.getDbias())
    dbias = zeros(shape, op.getDbias().getType());
  const int64_t keyWidth = op.getKeyDim(), valueWidth = op.getValueDim();
  reference.forEach([&](const Pair &pair, int64_t h) {
    const int64_t keyFirst = keyFeature(k, h, reference.heads, keyWidth),
                  valueFirst = keyFeature(v, h, reference.heads, valueWidth);
    double p = std::exp(reference.score(pair, h, q, k) - lse.row(pair.query)[h]), factor = reference.factor(pair, h);
    const double *dorow = dout.row(pair.query) + h * valueWidth;
    const double weight = rounded(p * factor, op.getCompute());
    for (int64_t f = 0; f < valueWidth; ++f)
      dv.row(pair.key)[valueFirst + f] += weight * dorow[f];
    double dp = factor * dot(dorow, v.row(pair.key) + valueFirst, valueWidth);
    double dscore = p * (dp - dot(dorow, o.row(pair.query) + h * valueWidth, valueWidth));
    const double ds = rounded(dscore, op.getCompute());
    if (op.getDbias()) {
      const Entry entry = entryOf(shape, pair, reference.queries, reference.keys);
      dbias.row(pair.query - pair.queryOffset + entry.distance)[2 * h + entry.after] += dscore;
    }
    for (int64_t f = 0; f < keyWidth; ++f) {
      dq.row(pair.query)[h * keyWidth + f] += reference.scale * ds * k.row(pair.key)[keyFirst + f];
      dk.row(pair.key)[keyFirst + f] += ds * q.row(pair.query)[h * keyWidth + f];
    }
  });
  results.append({std::move(dq), std::move(dk), std::move(dv)});
  if (op.getDbias())
    results.push_back(std::move(dbias));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// quantize, cache_write
//===--------------------------------------------------------------------------------------------------------===//

// Rows of a narrower float are rounded where results of that type are.
static LogicalResult evaluateOp(QuantizeOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor x = operands[0];
  if (!op.getScale()) {
    results.push_back(std::move(x));
    return success();
  }
  Tensor scales = zeros(shape, op.getScale().getType());
  const auto groups = static_cast<int64_t>(op.getGroups());
  const int64_t width = x.features() / groups;
  for (int64_t part = 0; part < x.shape[0] * groups; ++part) {
    double *const row = x.data.data() + part * width;
    double largest = 0;
    for (int64_t f = 0; f < width; ++f)
      largest = std::max(largest, std::abs(row[f]));
    if (largest < 0x1p-100)
      largest = 0;
    for (int64_t f = 0; f < width; ++f)
      row[f] = largest > 0 ? std::nearbyint(row[f] * (127 / largest)) : 0;
    scales.data[part] = largest / 127;
  }
  results.append({std::move(x), std::move(scales)});
  return success();
}

static LogicalResult evaluateOp(CacheWriteOp, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor cache = operands[0];
  for (int64_t h = 0; h < operands[1].shape[0]; ++h)
    std::copy_n(operands[1].row(h), cache.features(), cache.row(shape.slots[h]));
  results.push_back(std::move(cache));
  return success();
}

void attachAttentionEvaluators(MLIRContext &context) {
  attachEvaluators<ScoresOp, CombineOp, CombineTransposedOp, DistanceBiasOp, DistanceBiasGradOp, AddDistanceBiasOp,
                   SumDistancesOp, MaskOp, SoftmaxOp, SoftmaxGradOp, AttentionOp, AttentionGradOp, QuantizeOp,
                   CacheWriteOp>(context);
}

} // namespace xfc
