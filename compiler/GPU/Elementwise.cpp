// Elementwise kernels: scalar functions, masks, dropout, constants, writes to the cache, positions, rotations, and
// weights rounded to bf16.
#include "AttentionTiles.h"
#include "Emitters.h"
#include "Rows.h"
#include <limits>

using namespace mlir;

namespace xfc::gpu {

// Computes each pair: compute(its operands, its head and sequence, the index of the query, the index of the key).
using ComputePair = std::function<Value(ArrayRef<Value>, HeadOfSequence &, Value, Value)>;
static KernelInfo overPairs(KernelBuilder &k, Operation *op, const ComputePair &compute,
                            std::optional<uint64_t> reach = {}) {
  auto type = cast<PairsType>(op->getResultTypes().front());
  return {eachQuery(k, type.getHeads(), [&](HeadOfSequence &at, Value query) {
    at.setReach(k, reach, type.getKeys() == RowSet::cache);
    SmallVector<View> rows;
    for (BufferIndex buffer : buffersOf(op))
      rows.push_back(at.pairsRow(k, buffer, type.getHeads(), query));
    k.loop(k.lane(), at.keys, KernelBuilder::warpSize, [&](Value key) {
      SmallVector<Value> xs;
      for (const View &row : ArrayRef(rows).drop_back())
        xs.push_back(k.load(row + key));
      View result = rows.back() + key;
      k.store(compute(xs, at, query, key), result);
    });
  })};
}

static KernelInfo emitMask(KernelBuilder &k, MaskOp op) {
  Value hidden = k.scalar(op.getZero() ? 0 : -std::numeric_limits<double>::infinity());
  auto compute = [&](ArrayRef<Value> xs, HeadOfSequence &at, Value query, Value key) {
    Value x = k.select(k.less(key, at.limit(k, query)), xs[0], hidden);
    return at.reach ? k.select(k.less(key, at.first(k, query)), hidden, x) : x;
  };
  return overPairs(k, op, compute, op.getReach());
}

// One Philox counter gives the random numbers of eight features, 8 apart (abi.h). A thread takes n adjacent counters of
// the eight that cover 64 features.
static Partition dropRows(KernelBuilder &k, DropoutOp op, int64_t width, double rate) {
  const int64_t per = rowsPerBlock(width);
  const BufferIndex x = op.getXMutable(), y = op.getResult();
  auto drop = [&](int64_t n) {
    const int64_t groups = 8 / n;
    eachGroup(k, per, (width + 63) / 64 * groups, [&](Value row, Value group) {
      const CodeBuilder::DropoutKey key = k.dropoutKeyOf(k.dropoutId(), row);
      Value block = k.div(group, groups), first = k.mul(k.rem(group, groups), n);
      SmallVector<std::array<Value, 4>> words;
      for (int64_t i = 0; i < n; ++i)
        words.push_back(k.philox(key, k.add(k.add(k.mul(block, 8), first), i)));
      for (int64_t begin = 0; begin < 64; begin += 8) {
        Value f = k.add(k.add(k.mul(block, 64), first), begin);
        auto part = [&] {
          auto at = [&](BufferIndex i) { return k.rowOf(i, row) + f; };
          Values xs = k.load(at(x), n);
          for (int64_t i = 0; i < n; ++i)
            xs[i] = k.mulf(xs[i], k.keepFactor(k.numberOf(words[i], begin), rate));
          k.store(xs, at(y));
        };
        if (width % 64 == 0)
          part();
        else
          k.when(k.less(f, width), part);
      }
    });
  };
  k.when(
      k.training(), [&] { k.vectorized({x, y}, width, drop); },
      [&] { k.overRows(width, {x, y}, [](ArrayRef<Value> xs) { return xs[0]; }); });
  return {Partition::Unit::Rows, per, 1};
}

static KernelInfo dropPairs(KernelBuilder &k, DropoutOp op, double rate) {
  Value training = k.training();
  const View positions = k.numbers(k.keyRows(), offsetof(xfc_rows, positions));
  return overPairs(k, op, [&](ArrayRef<Value> xs, HeadOfSequence &at, Value query, Value key) {
    return k.choose(
        training,
        [&]() -> Values {
          Value row = k.add(at.firstQuery, k.i64Of(query));
          CodeBuilder::DropoutKey dropout = k.dropoutKeyOf(k.dropoutId(), row);
          dropout.head = k.truncated(k.add(at.head, 1));
          Value f = k.truncated(k.loadIndex(positions + k.loadIndex(at.keyList + key)));
          std::array<Value, 4> words = k.philox(dropout, k.counterOf(f));
          Value kept = k.keeps(k.numberOf(words, f), rate);
          Value factor = k.scalar(1 / (1 - rate));
          return {k.mulf(xs[0], k.select(kept, factor, 0))};
        },
        [&]() -> Values { return {xs[0]}; })[0];
  });
}

static std::optional<KernelInfo> emitDropout(KernelBuilder &k, DropoutOp op) {
  if (op.getKept())
    return std::nullopt;
  const double rate = op.getRate().convertToDouble();
  if (isa<PairsType>(op.getType()))
    return dropPairs(k, op, rate);
  return {{dropRows(k, op, widthOf(op.getResult()), rate)}};
}

// A thread rotates one pair of features.
static KernelInfo emitRotate(KernelBuilder &k, RotateOp op) {
  const int64_t features = op.getType().getFeatures(), heads = static_cast<int64_t>(op.getHeads());
  const int64_t width = features / heads, rotated = op.getTable().getType().getDimSize(1), half = rotated / 2;
  const int64_t rest = width - rotated, per = rowsPerBlock(features);
  View x = k.rowsOf(op.getXMutable()), y = k.rowsOf(op.getResult());
  View table = k.buffer(op.getTableMutable());
  const View positions = k.numbers(k.rows(), offsetof(xfc_rows, positions));
  eachGroup(k, per, heads * half, [&](Value row, Value group) {
    Value head = k.mul(k.div(group, half), width), pair = k.rem(group, half);
    View angles = table + k.mul(k.loadIndex(positions + row), rotated);
    View from = x.row(row) + head, to = y.row(row) + head;
    Value first = op.getHalves() ? pair : k.mul(pair, 2), second = k.add(first, op.getHalves() ? half : 1);
    Value sine = k.load(angles + first), cosine = k.load(angles + second);
    Value a = k.load(from + first), b = k.load(from + second);
    Value negative = k.subf(0, sine);
    const View firstTo = to + first;
    k.store(k.fma(a, cosine, k.mulf(b, op.getInverse() ? sine : negative)), firstTo);
    const View secondTo = to + second;
    k.store(k.fma(b, cosine, k.mulf(a, op.getInverse() ? negative : sine)), secondTo);
  });
  if (rest)
    eachGroup(k, per, heads * rest, [&](Value row, Value group) {
      Value within = k.add(k.rem(group, rest), rotated), f = k.add(k.mul(k.div(group, rest), width), within);
      const View copy = y.row(row) + f;
      k.store(k.load(x.row(row) + f), copy);
    });
  return {{Partition::Unit::Rows, per, 1}};
}

PackInfo emitPackWeight(KernelBuilder &k, RankedTensorType weight) {
  const int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1), width = packedColumns(columns),
                pairs = width / 2;
  const int64_t per = std::max<int64_t>(1, 4096 / width), chunks = (rows + per - 1) / per;
  Value from = k.mul(k.chunk, per), count = k.truncated(k.min(per, k.sub(rows, from)));
  k.acrossThreads(k.mul(count, pairs), [&](Value i) {
    Value row = k.add(from, k.i64Of(k.div(i, pairs))), f = k.mul(k.rem(i, pairs), 2);
    auto at = [&](int64_t part) {
      Value column = k.add(f, part);
      return k.choose(
          k.less(column, columns),
          [&]() -> Values {
            Value first = k.mul(row, columns);
            return {k.load(k.buffer({PackBuffers::weight, k.element}) + first + column)};
          },
          [&]() -> Values { return {k.scalar(0)}; })[0];
    };
    Value low = at(0), high = at(1);
    Value pair = k.ptx("cvt.rn.bf16x2.f32 $0, $1, $2;", {high, low}, {k.i32}, /*pure=*/true)[0];
    Value ofRow = k.i64Of(k.div(f, 2)), place = k.add(k.mul(row, pairs), ofRow);
    k.store(pair, k.buffer({PackBuffers::packed, k.i32}) + place);
  });
  return {rows * width * 2, chunks};
}

void attachElementwiseKernels(MLIRContext &context) { attachKernels<emitMask, emitDropout, emitRotate>(context); }

} // namespace xfc::gpu
