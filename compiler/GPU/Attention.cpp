// xfc.attention: scores, softmax, dropout and the weighted sum of values, one block of keys at a time, without storing
// pairs (Dao, 2023).
#include "AttentionTiles.h"
#include "Emitters.h"
#include <numbers>

using namespace mlir;

namespace xfc::gpu {
namespace {

class AttentionKernel {
public:
  AttentionKernel(KernelBuilder &k, AttentionOp op);
  KernelInfo emit();

private:
  // A lane's state for its two rows: the outputs so far, not yet normalized; the largest score; the sum of the
  // exponentials in its own columns.
  struct State {
    Values outputs;
    std::array<Value, 2> maxima, sums;
    Values flat() const;
    static State of(const Values &flat);
  };
  // A block of queries: where it begins, how many there are, and this lane's two of them, with the keys that they see.
  struct QueryBlock {
    Value start, rowsLeft;
    std::array<Value, 2> rows, firsts, limits;
    Value largestLimit, jointLimit;    // the largest limit of the block, and of the rows that are computed together
    Value smallestLimit, largestFirst; // of the warp's rows
  };
  void queryBlock(HeadOfSequence &at, Value start);
  Values scoresOf(HeadOfSequence &at, const Tile &keyTile, Value firstKey);
  void step(HeadOfSequence &at, Value firstKey, Value stage, State &state);
  void finish(HeadOfSequence &at, State &state);
  void writeWeights(HeadOfSequence &at, const std::array<Value, 2> &logSums);

  KernelBuilder &k;
  AttentionOp op;
  const bool bf16;
  const BufferIndex q, key, value;
  const int64_t heads, keyHeads, keyDim, valueDim;
  const Core core;
  AttentionTiles tiles;
  double rate;
  bool wantsLse, wantsWeights;
  std::optional<BufferIndex> keyScale, valueScale; // of integers
  // Queries and keys per block. Blocks of keys are counted from the first key of the list, whatever the queries, so
  // that a row's sums have a fixed order.
  static constexpr int64_t queries = 64;
  const int64_t keys;
  int64_t stages = 1; // of the tiles of keys and values
  Tile queryTile, keyTiles, valueTiles, room;
  std::optional<PairBias> bias;
  QueryBlock block; // the current one
};

AttentionKernel::AttentionKernel(KernelBuilder &k, AttentionOp op)
    : k(k), op(op), bf16(op.getCompute().has_value()), q(op.getQMutable()), key(op.getKMutable()),
      value(op.getVMutable()), heads(op.getHeads()), keyHeads(op.getKeyHeads()), keyDim(op.getKeyDim()),
      valueDim(op.getValueDim()), core(AttentionTiles::coreOf(k, bf16, std::max(keyDim, valueDim),
                                                              {{q, keyDim}, {key, keyDim}, {value, valueDim}})),
      tiles(k, core), keys(bf16 ? 64 : 32) {
  rate = op.getRate().convertToDouble();
  wantsLse = !op.getLse().use_empty();
  wantsWeights = op.getWeights() && !op.getWeights().use_empty();
  keyScale = optionalBuffer(op.getKScaleMutable());
  valueScale = optionalBuffer(op.getVScaleMutable());
}

Values AttentionKernel::State::flat() const {
  Values all = outputs;
  all.append(maxima.begin(), maxima.end());
  all.append(sums.begin(), sums.end());
  return all;
}

AttentionKernel::State AttentionKernel::State::of(const Values &flat) {
  const size_t n = flat.size() - 4;
  return {Values(flat.begin(), flat.begin() + n), {flat[n], flat[n + 1]}, {flat[n + 2], flat[n + 3]}};
}

KernelInfo AttentionKernel::emit() {
  k.threads = queries / AttentionTiles::warpRows * KernelBuilder::warpSize;
  // These limits let two blocks share a multiprocessor, or three, or, without dropout and reach, four. wgmma reads most
  // operands from shared memory, so that wider heads still fit the limit of three blocks.
  const int64_t widest = std::max(keyDim, valueDim);
  k.registers = widest > (core == Core::Warpgroup ? 128 : 64) ? 232 : 168;
  if (core == Core::Warpgroup && widest <= 64 && rate == 0 && !op.getReach())
    k.registers = 128;
  // Two stages where rows are copied asynchronously and narrow enough that blocks still share a multiprocessor.
  if (tiles.isDirect(key, keyDim) && tiles.isDirect(value, valueDim) && widest <= 64)
    stages = 2;
  queryTile = tiles.tile(queries, keyDim);
  keyTiles = tiles.tiles(stages, keys, keyDim);
  valueTiles = tiles.tiles(stages, keys, valueDim);
  if (!bf16)
    room = tiles.tile(queries, keys);
  bias.emplace(k, tiles, DistanceTable::of(k, op), PairBias::Rows::queries, queries, keys);
  Value part = k.div(k.chunk, heads), head = k.rem(k.chunk, heads);
  eachQueryBlockOfRows(k, part, head, queries, [&](HeadOfSequence &at, Value first) {
    at.shareKeys(k, heads / keyHeads);
    at.setReach(k, op.getReach(), op.getK().getType().getSet() == RowSet::cache);
    queryBlock(at, first);
  });
  return {{Partition::Unit::Rows, queries, heads}};
}

void AttentionKernel::queryBlock(HeadOfSequence &at, Value first) {
  block.start = first;
  block.rowsLeft = k.min(k.sub(at.queries, block.start), queries);
  Value last = k.sub(block.rowsLeft, 1), zero = k.i32Of(0);
  for (int64_t r = 0; r < 2; ++r) {
    // Rows beyond the last repeat it, and see nothing.
    block.rows[r] = k.add(block.start, k.min(tiles.row(r), last));
    Value limit = at.limit(k, block.rows[r]);
    block.limits[r] = k.select(k.less(tiles.row(r), block.rowsLeft), limit, zero);
    block.firsts[r] = at.first(k, block.rows[r]);
  }
  block.largestLimit = at.largestLimit(k, block.start, block.rowsLeft, queries);
  block.jointLimit = tiles.largestOfJointRows(block.limits, block.largestLimit);
  block.smallestLimit =
      k.acrossLanes(k.min(block.limits[0], block.limits[1]), [&](Value x, Value y) { return k.min(x, y); });
  if (at.reach)
    block.largestFirst = tiles.largestOfRows(block.firsts);
  k.barrier(); // the tiles may still be in use for the previous block
  tiles.startCopy(queryTile, at.rows(k, q, keyDim, block.start), block.rowsLeft, q, keyDim);
  auto keysFrom = [&](Value j) { return k.min(k.sub(at.keys, j), keys); };
  State state{tiles.zeros(valueTiles.width), {k.scalar(lowest), k.scalar(lowest)}, {k.scalar(0), k.scalar(0)}};
  state = State::of(tiles.eachBlock(
      at.firstBlock(k, block.start, keys), block.largestLimit, keys, stages, state.flat(),
      [&](Value j, Value stage) {
        Value count = keysFrom(j);
        const Tile keyTile = tiles.ofStage(keyTiles, stage), valueTile = tiles.ofStage(valueTiles, stage);
        tiles.startCopy(keyTile, at.listedRows(k, key, keyDim, j, keyScale), count, key, keyDim);
        tiles.startCopy(valueTile, at.listedRows(k, value, valueDim, j, valueScale), count, value, valueDim);
      },
      [&](Value j, Value stage, const Values &flat) {
        bias->copyIn(at, block.start, j, keysFrom(j));
        return k.choose(
            k.less(j, block.jointLimit),
            [&] {
              State next = State::of(flat);
              step(at, j, stage, next);
              return next.flat();
            },
            [&] { return flat; });
      }));
  finish(at, state);
}

Values AttentionKernel::scoresOf(HeadOfSequence &at, const Tile &keyTile, Value firstKey) {
  Values scores = tiles.scores(tiles.productTransposed(queryTile, keyTile), op.getScale().convertToDouble());
  bias->add(at, scores);
  // Most blocks of keys are seen in full by every row of the warp, and need no mask.
  Value seenByAll = k.less(k.add(firstKey, keys - 1), block.smallestLimit);
  if (at.reach)
    seenByAll = k.both(seenByAll, k.less(block.largestFirst, k.add(firstKey, 1)));
  return k.choose(
      seenByAll, [&] { return scores; },
      [&] {
        Value first = k.add(firstKey, tiles.column(0));
        const Value seen[2] = {k.sub(block.limits[0], first), k.sub(block.limits[1], first)};
        const Value before[2] = {k.sub(block.firsts[0], first), k.sub(block.firsts[1], first)};
        Values masked = scores;
        for (size_t i = 0; i < scores.size(); ++i) {
          Value column = k.i32Of(static_cast<int32_t>(AttentionTiles::columnOf(i)));
          masked[i] = k.select(k.less(column, seen[AttentionTiles::rowOf(i)]), scores[i], lowest);
          if (at.reach)
            masked[i] = k.select(k.less(column, before[AttentionTiles::rowOf(i)]), lowest, masked[i]);
        }
        return masked;
      });
}

// One step of the online softmax (Milakov and Gimelshein, 2018).
void AttentionKernel::step(HeadOfSequence &at, Value firstKey, Value stage, State &state) {
  Value count = k.min(k.sub(at.keys, firstKey), keys);
  Values p = scoresOf(at, tiles.ofStage(keyTiles, stage), firstKey);
  std::array<Value, 2> largest = state.maxima, shrink, reference;
  for (int64_t i = 0; i < static_cast<int64_t>(p.size()); ++i)
    largest[AttentionTiles::rowOf(i)] = k.maxf(largest[AttentionTiles::rowOf(i)], p[i]);
  for (int64_t r = 0; r < 2; ++r) {
    largest[r] = tiles.rowMax(largest[r]);
    reference[r] = softmaxReference(k, largest[r]);
    shrink[r] = k.exp2(k.subf(state.maxima[r], reference[r]));
    state.sums[r] = k.mulf(state.sums[r], shrink[r]);
  }
  state.maxima = largest;
  for (int64_t i = 0; i < static_cast<int64_t>(p.size()); ++i) {
    const int64_t r = AttentionTiles::rowOf(i);
    p[i] = k.exp2(k.subf(p[i], reference[r]));
    state.sums[r] = k.addf(state.sums[r], p[i]);
  }
  PairDropout dropout(k, tiles, at, rate);
  Value kept = dropout.ofQueries(block.rows, firstKey, count, keys);
  for (int64_t i = 0; i < static_cast<int64_t>(p.size()); ++i)
    p[i] = dropout.dropped(p[i], kept, i);
  for (size_t i = 0; i < state.outputs.size(); ++i)
    state.outputs[i] = k.mulf(state.outputs[i], shrink[AttentionTiles::rowOf(i)]);
  const Tile valueTile = tiles.ofStage(valueTiles, stage);
  state.outputs = tiles.product(state.outputs, AttentionTiles::Left::rowsOf(p, room), valueTile, count);
}

// Writes the normalized outputs, and lse and the weights if they are wanted.
void AttentionKernel::finish(HeadOfSequence &at, State &state) {
  std::array<Value, 2> factors, logSums;
  Value kept = PairDropout(k, tiles, at, rate).scale();
  for (int64_t r = 0; r < 2; ++r) {
    Value sum = tiles.rowSum(state.sums[r]), any = k.lessf(0, sum);
    factors[r] = k.select(any, k.divf(kept, sum), 0);
    // The state has powers of two, so the logarithm is to base 2.
    Value log2 = k.ptx("lg2.approx.ftz.f32 $0, $1;", {sum}, {k.element}, /*pure=*/true)[0];
    logSums[r] = k.select(any, k.addf(state.maxima[r], log2), 0);
  }
  tiles.copyOut(at.rows(k, op.getResult(), valueDim, block.start), state.outputs, block.rowsLeft, op.getResult(),
                valueDim, factors);
  if (wantsLse) {
    RowAt rowAt = at.rows(k, op.getLse(), 1, block.start);
    for (int64_t r = 0; r < 2; ++r) {
      Value isRow = k.less(tiles.row(r), block.rowsLeft);
      k.when(k.both(k.equal(k.bitAnd(k.lane(), 3), 0), isRow), [&] {
        const View place = rowAt(tiles.row(r));
        k.store(k.mulf(logSums[r], std::numbers::ln2), place);
      });
    }
  }
  if (wantsWeights)
    writeWeights(at, logSums);
}

// Computes the scores once more, now that the sums of their exponentials are known.
void AttentionKernel::writeWeights(HeadOfSequence &at, const std::array<Value, 2> &logSums) {
  View pairs = at.pairs(k, op.getWeights(), heads);
  Tile keyTile = tiles.ofStage(keyTiles, k.i32Of(0));
  k.loop(0, at.keys, keys, [&](Value j) {
    Value count = k.min(k.sub(at.keys, j), keys);
    k.barrier();
    tiles.startCopy(keyTile, at.listedRows(k, key, keyDim, j, keyScale), count, key, keyDim);
    tiles.finishCopies();
    bias->copyIn(at, block.start, j, count);
    Values scores = scoresOf(at, keyTile, j);
    for (size_t i = 0; i < scores.size(); ++i)
      scores[i] = k.exp2(k.subf(scores[i], logSums[AttentionTiles::rowOf(i)]));
    tiles.copyOutPairs(pairs.row(k.i64Of(block.start)) + j, scores, block.rowsLeft, count);
  });
}

struct AttentionKernels : GPUKernelOpInterface::ExternalModel<AttentionKernels, AttentionOp> {
  std::optional<KernelInfo> emitKernel(Operation *op, KernelBuilder &k) const {
    auto attention = cast<AttentionOp>(op);
    return isOneQueryAttention(attention) ? emitOneQueryAttention(k, attention) : AttentionKernel(k, attention).emit();
  }
  std::string getVariant(Operation *op, const Architecture &) const {
    return isOneQueryAttention(cast<AttentionOp>(op)) ? "one_query" : "";
  }
};

} // namespace

void attachAttentionKernels(MLIRContext &context) { AttentionOp::attachInterface<AttentionKernels>(context); }

} // namespace xfc::gpu
