// Unfused attention, apart from its products: masks, softmax, and biases by distance; and the loss that guides
// attention to given keys.
#include "Codegen/Distances.h"
#include "Codegen/Softmax.h"
#include "RowKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <limits>

using namespace mlir;

namespace xfc {

static Partition emitMask(Machine &k, MaskOp op) {
  const int64_t heads = op.getType().getHeads();
  const double hidden = op.getZero() ? 0 : -std::numeric_limits<double>::infinity();
  auto body = [&](PairsRow &row) {
    const View x = row.in(op.getXMutable(), heads), y = row.in(op.getResult(), heads);
    row.storeSeen(x, hidden, y);
  };
  return k.eachPairsRow(heads, op.getType().getKeys() == RowSet::cache, body, op.getReach());
}

static Partition emitSoftmax(Machine &k, SoftmaxOp op) {
  const int64_t heads = op.getType().getHeads();
  return k.eachPairsRow(heads, /*cached=*/false, [&](PairsRow &row) {
    const View x = row.in(op.getXMutable(), heads), y = row.in(op.getResult(), heads);
    Value reference = softmaxReference(k, row.largest(x, lowest));
    Value sum = row.sum({x}, y, [&](ArrayRef<Value> v) { return k.exp(k.subf(v[0], reference)); });
    Value scale = softmaxScale(k, sum);
    row.store({y}, y, [&](ArrayRef<Value> v) { return k.mulf(v[0], scale); });
  });
}

static Partition emitSoftmaxGrad(Machine &k, SoftmaxGradOp op) {
  const int64_t heads = op.getType().getHeads();
  return k.eachPairsRow(heads, /*cached=*/false, [&](PairsRow &row) {
    const View dp = row.in(op.getDpMutable(), heads), p = row.in(op.getPMutable(), heads);
    Value sum = row.sum({dp, p}, {}, [&](ArrayRef<Value> v) { return k.mulf(v[0], v[1]); });
    row.store({dp, p}, row.in(op.getResult(), heads),
              [&](ArrayRef<Value> v) { return softmaxGrad(k, v[0], v[1], sum); });
  });
}

// Each chunk computes a range of distances.
static Partition emitDistanceBias(Machine &k, DistanceBiasOp op) {
  constexpr int64_t per = 512;
  const int64_t distances = op.getType().getDimSize(0), heads = op.getType().getDimSize(1) / 2;
  const View bias = k.buffer(op.getResult());
  Value from = k.mul(k.chunk, per), to = k.add(from, per);
  // body(distance, head, the entry for keys before the query).
  auto each = [&](int64_t first, int64_t end, const std::function<void(Value, Value, const View &)> &body) {
    Value begin = k.max(first, from), stop = k.min(end, to);
    k.eachOfGrid(begin, stop, heads, [&](Value t, Value head) {
      Value column = k.mul(head, 2);
      body(t, head, bias + k.add(k.mul(t, 2 * heads), column));
    });
  };
  if (op.getTable())
    for (const DistanceRange &range : distanceRanges(op, op.getTable().getType().getDimSize(0), distances)) {
      const View entry = k.buffer(op.getTableMutable()) + range.bucket * heads;
      each(range.first, range.end, [&](Value, Value head, const View &place) {
        const View to = place + range.after;
        k.store(k.load(entry + head), to);
      });
    }
  else
    each(0, distances, [&](Value t, Value head, const View &place) {
      Value slope = k.scalar(0);
      for (int64_t h = 0; h < heads; ++h)
        slope = k.select(k.equal(head, h), -slopeOfHead(h, heads), slope);
      Value number = k.mulf(arith::SIToFPOp::create(k.b, k.element, t), slope);
      k.store(number, place);
      k.store(number, place + 1);
    });
  return {Partition::Unit::One, 1, (distances + per - 1) / per};
}

// Each chunk computes one bucket.
static Partition emitDistanceBiasGrad(Machine &k, DistanceBiasGradOp op) {
  const int64_t buckets = op.getType().getDimSize(0), heads = op.getType().getDimSize(1);
  const SmallVector<DistanceRange> ranges = distanceRanges(op, buckets, op.getDy().getType().getDimSize(0));
  const View dy = k.buffer(op.getDyMutable()), result = k.buffer(op.getResult());
  Value one = k.index(1);
  k.eachOfGrid(k.index(0), one, heads, [&](Value, Value head) {
    Value sum = k.scalar(0);
    for (const DistanceRange &range : ranges)
      sum = k.choose(
          k.equal(k.chunk, range.bucket),
          [&] {
            return k.loop(range.first, range.end, 1, ValueRange{sum}, [&](Value t, Values s) -> Values {
              const View row = dy + k.mul(t, 2 * heads);
              return {k.addf(s[0], k.load(row + k.mul(head, 2) + range.after))};
            });
          },
          [&]() -> Values { return {sum}; })[0];
    Value first = k.mul(k.chunk, heads);
    const View place = result + first + head;
    k.store(sum, place);
  });
  return {Partition::Unit::One, 1, buckets};
}

static Partition emitAddDistanceBias(Machine &k, AddDistanceBiasOp op) {
  const int64_t heads = op.getType().getHeads();
  return k.eachPairsRow(heads, op.getType().getKeys() == RowSet::cache, [&](PairsRow &row) {
    const View x = row.in(op.getXMutable(), heads), y = row.in(op.getResult(), heads);
    Value column = k.mul(row.head, 2);
    const View table = k.buffer(op.getBiasMutable()) + column;
    row.each(row.keys, [&](Value key) {
      auto [distance, after] = row.distanceOf(key);
      Value bias = k.load(table + k.mul(distance, 2 * heads) + after);
      const View sum = y + key;
      k.store(k.addf(k.load(x + key), bias), sum);
    });
  });
}

namespace {

// The links of the rows of xfc.alignment_loss or of its gradient.
struct AlignmentLinks {
  template <typename Op>
  AlignmentLinks(CodeBuilder &k, Op op)
      : width(op.getLinks().getType().getFeatures()), k(k), links(k.rowsOf(op.getLinksMutable())),
        shares(k.rowsOf(op.getSharesMutable())) {}
  const int64_t width; // the number of links of a row, some of which may be none

  // Runs then(the index of the key, the link's share), or otherwise() if link i of the row is none.
  Values choose(Value row, Value i, const std::function<Values(Value, Value)> &then,
                const std::function<Values()> &otherwise) const {
    Value key = k.loadIndex(links(row, i));
    return k.choose(k.less(key, 0), otherwise, [&] { return then(key, k.load(shares(row, i))); });
  }

private:
  CodeBuilder &k;
  const View links, shares;
};

} // namespace

// A link's loss is -share log(mean + epsilon), where mean is that of its probabilities over the heads concerned, which
// are one or all; the probabilities of each further head follow after `perHead` numbers.
static Partition emitAlignmentLoss(Machine &k, AlignmentLossOp op) {
  const int64_t heads = op.getP().getType().getHeads();
  const AlignmentLinks links(k, op);
  const View loss = k.rowsOf(op.getLossMutable()), means = k.rowsOf(op.getMeans());
  return k.eachPairsRow(1, /*cached=*/false, [&](PairsRow &row) {
    const View first = row.in(op.getPMutable(), heads);
    auto meanAt = [&](Value key) {
      const View ofFirstHead = first + key;
      auto ofHead = [&](Value h) { return k.load(ofFirstHead + k.mul(h, row.perHead)); };
      if (op.getHead())
        return ofHead(k.index(static_cast<int64_t>(*op.getHead())));
      Value sum = k.loop(0, heads, 1, ValueRange{k.scalar(0)},
                         [&](Value h, Values s) -> Values { return {k.addf(s[0], ofHead(h))}; })[0];
      return k.mulf(sum, 1.0 / static_cast<double>(heads));
    };
    Value sum = row.sumOfEach(links.width, [&](Value i) {
      auto meanAndLoss = [&](Value key, Value share) -> Values {
        Value mean = meanAt(key), log = k.log(k.addf(mean, AlignmentLossOp::epsilon));
        return {mean, k.mulf(k.subf(0, share), log)};
      };
      Values ofLink = links.choose(row.query, i, meanAndLoss, [&]() -> Values { return {k.scalar(0), k.scalar(0)}; });
      if (!op.getMeans().use_empty())
        k.store(ofLink[0], means(row.query, i));
      return ofLink[1];
    });
    row.once([&] {
      k.storeIfRead(sum, op.getAlignment(), row.query);
      k.storeIfRead(k.addf(k.load(loss.row(row.query)), sum), op.getResult(), row.query);
    });
  });
}

// The gradient of a link's probability is the same for each head concerned.
static Partition emitAlignmentLossGrad(Machine &k, AlignmentLossGradOp op) {
  const int64_t heads = op.getType().getHeads();
  const std::optional<uint64_t> head = op.getHead();
  const AlignmentLinks links(k, op);
  const View dloss = k.rowsOf(op.getDlossMutable()), means = k.rowsOf(op.getMeansMutable());
  return k.eachPairsRow(heads, /*cached=*/false, [&](PairsRow &row) {
    const View gradient = row.in(op.getResult(), heads);
    row.clear(gradient);
    k.when(head ? k.equal(row.head, static_cast<int64_t>(*head)) : k.boolean(true), [&] {
      Value d = k.load(dloss.row(row.query));
      row.each(links.width, [&](Value i) {
        auto store = [&](Value key, Value share) -> Values {
          Value mean = k.load(means(row.query, i)), shifted = k.addf(mean, AlignmentLossOp::epsilon);
          Value ofHeads = k.mulf(head ? -1 : -static_cast<double>(heads), shifted);
          const View place = gradient + key;
          k.store(k.divf(k.mulf(d, share), ofHeads), place);
          return {};
        };
        links.choose(row.query, i, store, []() -> Values { return {}; });
      });
    });
  });
}

void attachPairsBodies(MLIRContext &context) {
  attachRowKernels<emitMask, emitSoftmax, emitSoftmaxGrad, emitDistanceBias, emitDistanceBiasGrad, emitAddDistanceBias,
                   emitAlignmentLoss, emitAlignmentLossGrad>(context);
}

} // namespace xfc
