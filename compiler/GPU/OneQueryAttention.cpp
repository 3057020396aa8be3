// xfc.attention with one query per sequence, as in a decoding step: keys are split over the warps of a block, and the
// parts are merged in order.
#include "Analysis/Kernels.h"
#include "AttentionTiles.h"
#include "Emitters.h"
#include "TensorCore.h"
#include "llvm/Support/MathExtras.h"
#include <numbers>

using namespace mlir;

namespace xfc::gpu {
namespace {

// A product of one row would leave 15 of a tensor core's 16 rows empty, and keys are read only once. So scores are dot
// products, each by eight lanes, which together load whole lines of 128 bytes. The loads of all keys and values of a
// warp's part are in flight at once.
//
// Part i of a sequence is keys i * size .. i * size + size - 1 of those that the query sees. It gives its largest
// score, the sum of its exponentials, and the sum of the values weighted by them. Parts are merged one after the other,
// in ascending order. So a result's bits depend only on its own keys, not on which warp has which part.
class OneQueryAttention {
public:
  OneQueryAttention(KernelBuilder &k, AttentionOp op);
  KernelInfo emit();

private:
  static constexpr int64_t warps = 4, lanes = 8,
                           groups = KernelBuilder::warpSize / lanes; // lanes per key, keys per step
  static constexpr int64_t columns = 4 * lanes;                      // columns of a row that its lanes load at once
  static int64_t padded(int64_t dim) { return (dim + columns - 1) / columns * columns; }
  int64_t size() const { return groups * steps; }

  Value group() { return k.shiftRight(k.lane(), 3); }
  Value firstColumn(int64_t element); // of the lane's four adjacent columns that include this element
  Values partOfRow(const View &row, int64_t dim, int64_t vector);
  void round(Values &xs);
  Value acrossGroups(Value v, const KernelBuilder::Combine &combine);
  Values part(HeadOfSequence &at, const Values &q, Value first, Value limit);
  void join(Values &state, const View &theirs);

  KernelBuilder &k;
  AttentionOp op;
  const bool bf16;
  const double scale;
  const int64_t heads, keyHeads, keyDim, valueDim;
  const std::optional<uint64_t> reach;
  const bool cached;
  int64_t steps = 4; // per part
  std::optional<DistanceTable> table;
  const BufferIndex q, key, value;
  std::optional<BufferIndex> keyScale, valueScale;            // of integers
  int64_t partStride() const { return padded(valueDim) + 4; } // values, largest score, sum; a multiple of 16 bytes
  int64_t ownColumns() const { return llvm::divideCeil(valueDim, k.threads); }
};

OneQueryAttention::OneQueryAttention(KernelBuilder &k, AttentionOp op)
    : k(k), op(op), bf16(op.getCompute().has_value()), scale(op.getScale().convertToDouble()),
      heads(static_cast<int64_t>(op.getHeads())), keyHeads(op.getKeyHeads()), keyDim(op.getKeyDim()),
      valueDim(op.getValueDim()), reach(op.getReach()), cached(op.getK().getType().getSet() == RowSet::cache),
      table(DistanceTable::of(k, op)), q(op.getQMutable()), key(op.getKMutable()), value(op.getVMutable()) {
  keyScale = optionalBuffer(op.getKScaleMutable());
  valueScale = optionalBuffer(op.getVScaleMutable());
  // Loads in flight take registers: 64 of them for heads of 64.
  for (const int64_t row = (padded(keyDim) + padded(valueDim)) / lanes; steps > 1 && row * steps > 128;)
    steps /= 2;
}

KernelInfo OneQueryAttention::emit() {
  k.threads = warps * KernelBuilder::warpSize;
  k.registers = std::max(keyDim, valueDim) > 64 ? 232 : 168;
  const View parts = k.at(k.shared(warps * partStride() * 4));
  Value zero = k.i32Of(0);
  return {eachHead(k, heads, [&](HeadOfSequence &at) {
    at.shareKeys(k, heads / keyHeads);
    at.setReach(k, reach, cached);
    Value limit = at.limit(k, zero);
    Values query = partOfRow(at.rows(k, q, keyDim, zero)(zero), keyDim, 1);
    // Scores are scaled by log2(e), so that exponentials are powers of two.
    for (Value &x : query)
      x = k.mulf(x, scale * std::numbers::log2e);
    round(query);
    auto partAt = [&](Value warp) { return parts + k.mul(warp, partStride()); };
    // For all parts so far: the largest score, the sum of the weights, and this thread's columns of the weighted
    // values.
    Values state = {k.scalar(lowest), k.scalar(0)};
    Value none = k.scalar(0);
    state.append(ownColumns(), none);
    state = k.loop(at.first(k, zero), limit, warps * size(), state, [&](Value j, Values joined) {
      Value first = k.add(j, k.mul(k.warp(), size()));
      Values own = k.choose(
          k.less(first, limit), [&] { return part(at, query, first, limit); },
          [&] {
            Values none(2 + padded(valueDim) / lanes, k.scalar(0));
            none[0] = k.scalar(lowest);
            return none;
          });
      k.barrier(); // the previous parts have been merged
      k.when(k.equal(group(), zero), [&] {
        for (int64_t e = 0; e < padded(valueDim) / lanes; e += 4) {
          Value column = firstColumn(e);
          k.store(ArrayRef<Value>(own).slice(2 + e, 4), partAt(k.warp()) + column);
        }
      });
      k.when(k.equal(k.lane(), zero), [&] { k.store({own[0], own[1]}, partAt(k.warp()) + padded(valueDim)); });
      k.barrier();
      for (int32_t warp = 0; warp < warps; ++warp)
        join(joined, partAt(k.i32Of(warp)));
      return joined;
    });
    Value factor = softmaxScale(k, state[1]);
    const View row = at.rows(k, op.getResult(), valueDim, zero)(zero);
    for (int64_t i = 0; i < ownColumns(); ++i) {
      Value column = k.add(k.thread(), i * k.threads);
      const View place = row + column;
      Value output = k.mulf(state[2 + i], factor);
      k.storeIf(k.less(column, valueDim), {output}, place);
    }
  })};
}

Value OneQueryAttention::firstColumn(int64_t element) {
  return k.add(k.shiftLeft(k.bitAnd(k.lane(), lanes - 1), 2), element / 4 * columns);
}

// The lane's part of a row of a head's features, padded with zeros: four of every 32 columns.
Values OneQueryAttention::partOfRow(const View &row, int64_t dim, int64_t vector) {
  Values xs;
  for (int64_t e = 0; e < padded(dim) / lanes; e += vector) {
    Value column = k.add(firstColumn(e), e % 4);
    const View part = row + column;
    Values loaded = k.loadIf(k.less(column, dim), part, vector);
    xs.append(loaded.begin(), loaded.end());
  }
  return xs;
}

// Rounds to bf16 if the op computes in it.
void OneQueryAttention::round(Values &xs) {
  for (size_t i = 0; bf16 && i < xs.size(); i += 2) {
    Value pair = k.pairOfBF16(xs[i], xs[i + 1]);
    llvm::copy(k.halvesOf(pair), xs.begin() + i);
  }
}

Value OneQueryAttention::acrossGroups(Value v, const KernelBuilder::Combine &combine) {
  for (int64_t mask = lanes; mask < KernelBuilder::warpSize; mask *= 2)
    v = combine(v, k.shuffleXor(v, mask));
  return v;
}

// The warp's part, from key `first` on: its largest score, the sum of its exponentials, and the lane's columns of the
// weighted sum of values.
Values OneQueryAttention::part(HeadOfSequence &at, const Values &q, Value first, Value limit) {
  auto add = [&](Value x, Value y) { return k.addf(x, y); };
  Value last = k.sub(limit, 1), zero = k.i32Of(0);
  SmallVector<Value> numbers, biases;
  SmallVector<View> keyRows, valueRows;
  RowAt keyAt = at.listedRows(k, key, keyDim, zero, keyScale),
        valueAt = at.listedRows(k, value, valueDim, zero, valueScale);
  for (int64_t s = 0; s < steps; ++s) {
    numbers.push_back(k.add(k.add(first, group()), s * groups));
    keyRows.push_back(keyAt(k.min(numbers[s], last))); // keys beyond the last repeat it, and are masked
    valueRows.push_back(valueAt(k.min(numbers[s], last)));
    if (table) {
      Value position = at.queryPosition(k, zero),
            distance = k.sub(at.keyPosition(k, k.min(numbers[s], last)), position);
      biases.push_back(k.mulf(table->entry(at, distance), std::numbers::log2e));
    }
  }
  auto load = [&](int64_t vector) {
    Values all;
    for (const View &row : keyRows)
      all.append(partOfRow(row, keyDim, vector));
    for (const View &row : valueRows)
      all.append(partOfRow(row, valueDim, vector));
    return all;
  };
  auto loadAny = [&] {
    Value valuesAligned = k.aligned(value), aligned = k.both(k.aligned(key), valuesAligned);
    return k.choose(aligned, [&] { return load(4); }, [&] { return load(1); });
  };
  Values rows = keyDim % 4 || valueDim % 4 ? load(1) : loadAny();
  round(rows);

  const int64_t keyWidth = padded(keyDim) / lanes, valueWidth = padded(valueDim) / lanes;
  Values p;
  for (int64_t s = 0; s < steps; ++s) {
    Value sum = k.scalar(0);
    for (int64_t e = 0; e < keyWidth; ++e)
      sum = k.fma(q[e], rows[s * keyWidth + e], sum);
    sum = k.acrossLanes(sum, add, lanes);
    if (table)
      sum = k.addf(sum, biases[s]);
    p.push_back(k.select(k.less(numbers[s], limit), sum, lowest));
  }
  Value largest;
  for (Value x : p)
    largest = largest ? k.maxf(largest, x) : x;
  largest = acrossGroups(largest, [&](Value x, Value y) { return k.maxf(x, y); });
  Value sum = k.scalar(0);
  for (Value &x : p) {
    x = k.exp2(k.subf(x, largest));
    sum = k.addf(sum, x);
  }
  Values state = {largest, acrossGroups(sum, add)};
  if (steps == 1)
    p.push_back(k.scalar(0)); // rounding takes pairs
  round(p);
  for (int64_t e = 0; e < valueWidth; ++e) {
    Value weighted = k.scalar(0);
    for (int64_t s = 0; s < steps; ++s)
      weighted = k.fma(p[s], rows[steps * keyWidth + s * valueWidth + e], weighted);
    state.push_back(acrossGroups(weighted, add));
  }
  return state;
}

// Merges the next part, in shared memory, into the state of those before it. A part without keys changes nothing.
void OneQueryAttention::join(Values &state, const View &theirs) {
  const View stats = theirs + padded(valueDim);
  Value largest = k.load(stats), sum = k.load(stats + 1);
  Value both = k.maxf(state[0], largest), shrinkOurs = k.exp2(k.subf(state[0], both)),
        shrinkTheirs = k.exp2(k.subf(largest, both));
  auto joined = [&](Value ours, Value other) { return k.fma(other, shrinkTheirs, k.mulf(ours, shrinkOurs)); };
  state[0] = both;
  state[1] = joined(state[1], sum);
  for (int64_t i = 0; i < ownColumns(); ++i) {
    Value column = k.min(k.add(k.thread(), i * k.threads), valueDim - 1);
    state[2 + i] = joined(state[2 + i], k.load(theirs + column));
  }
}

} // namespace

bool isOneQueryAttention(AttentionOp op) {
  return isDecodingStep(op) && op.getQ().getType().getSet() == RowSet::target && op.getLse().use_empty() &&
         (!op.getWeights() || op.getWeights().use_empty()) && op.getRate().isZero();
}

KernelInfo emitOneQueryAttention(KernelBuilder &k, AttentionOp op) { return OneQueryAttention(k, op).emit(); }

} // namespace xfc::gpu
