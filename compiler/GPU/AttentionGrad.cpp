// xfc.attention_grad: dq, dk, dv and dbias, with the probabilities recomputed from lse. Every element of the results
// has one owner, which adds its terms in a fixed order.
#include "AttentionTiles.h"
#include "Emitters.h"
#include <numbers>

using namespace mlir;

namespace xfc::gpu {
namespace {

// With p the probabilities, m dropout's factors and D = do . o:
// dv = (m p)^T do, ds = p (m do v^T - D), dq = scale ds k, dk = scale ds^T q.
//
// There are two kinds of blocks of threads. One owns a block of queries and walks over the keys, for dq. The other owns
// a block of keys and walks over the queries with transposed scores, so that dk and dv are sums over columns, as dq is.
// This takes two more products, but nothing has to be accumulated in memory. With a bias there is a third kind, which
// owns a block of distances and walks over the pairs at those distances, for dbias: the sums of ds.
//
// In bf16, a sequence whose queries and keys each fit into one tile needs neither walk nor a second look: one block of
// threads computes all of its gradients with five products. Blocks of either of the first two kinds take such sequences
// in turns.
class AttentionGradKernel {
public:
  AttentionGradKernel(KernelBuilder &k, AttentionGradOp op);
  KernelInfo emit();

private:
  // A block of queries and the current block of keys: tiles, and a lane's state for its two queries.
  struct Pairs {
    Tile queries, dOutputs, keys, values; // keys and values of the first stage
    std::optional<PairBias> bias;
    Value start, left; // the first query, and how many there are
    std::array<Value, 2> rows, firsts, limits, logSums, deltas;
    Value largestLimit, jointLimit; // of the block, and of the queries that are computed together
  };
  Pairs makeTiles();
  void copyQueriesIn(HeadOfSequence &at, Pairs &pairs, Value start);
  void copyKeysIn(HeadOfSequence &at, const Pairs &pairs, Value stage, Value start);
  // For the pairs in the tiles: ds, and the probabilities that were not dropped, both 0 where the query does not see
  // the key.
  struct OfPairs {
    Values scores, probabilities;
  };
  // Scores and do v^T, or the transposes of both: the products of the two tiles on either side.
  std::pair<Values, Values> scoresAndChanges(AttentionTiles &tiles, const std::array<Tile, 2> &left,
                                             const std::array<Tile, 2> &right, HeadOfSequence &at, PairBias &bias);
  OfPairs gradientsOf(HeadOfSequence &at, Pairs &pairs, Value stage, Value firstKey, Value count);
  void writeQueryGradients(HeadOfSequence &at, const Pairs &pairs, const Values &dQueries);
  void sequence(HeadOfSequence &at);
  void queryBlock(HeadOfSequence &at, Value start);
  void keyBlocks(HeadOfSequence &at, Value start);
  void keyBlock(HeadOfSequence &at, Value start, Value count);
  void distanceBlock(HeadOfSequence &at, Value start);
  SmallVector<std::pair<BufferIndex, int64_t>> keyResults(); // and their features for a head
  Value deltaOf(HeadOfSequence &at, Value query, int64_t lanes);

  KernelBuilder &k;
  AttentionGradOp op;
  const bool bf16;
  const BufferIndex dOutput, q, key, value, output, lse;
  const int64_t heads, keyHeads, keyDim, valueDim;
  const Core core;
  AttentionTiles tiles;
  double scale, rate;
  bool wantsQ, wantsK, wantsV, wantsBias;
  // The rows that a block owns, and the rows that it walks over at a time.
  int64_t own, passing;
  int64_t stages = 1;          // of the tiles of keys and values
  bool takesSequences = false; // one block of threads takes a whole sequence, if that fits
};

AttentionGradKernel::AttentionGradKernel(KernelBuilder &k, AttentionGradOp op)
    : k(k), op(op), bf16(op.getCompute().has_value()), dOutput(op.getDoutputMutable()), q(op.getQMutable()),
      key(op.getKMutable()), value(op.getVMutable()), output(op.getOutputMutable()), lse(op.getLseMutable()),
      heads(op.getHeads()), keyHeads(op.getKeyHeads()), keyDim(op.getKeyDim()), valueDim(op.getValueDim()),
      core(AttentionTiles::coreOf(k, bf16, keyDim + valueDim,
                                  {{q, keyDim}, {key, keyDim}, {value, valueDim}, {dOutput, valueDim}})),
      tiles(k, core) {
  scale = op.getScale().convertToDouble();
  rate = op.getRate().convertToDouble();
  wantsQ = !op.getDq().use_empty();
  wantsK = !op.getDk().use_empty();
  wantsV = !op.getDv().use_empty();
  wantsBias = op.getDbias() && !op.getDbias().use_empty();
  // Sizes that fit into the registers and 99 KB of shared memory.
  const bool wide = std::max(keyDim, valueDim) > 64;
  own = bf16 || !wide ? 64 : 32;
  passing = bf16 && !wide ? 64 : 32;
  if (bf16 && !wide) {
    if (tiles.isDirect(key, keyDim) && tiles.isDirect(value, valueDim))
      stages = 2;
    takesSequences = wantsQ && wantsK && wantsV && !wantsBias && heads == keyHeads;
  }
}

KernelInfo AttentionGradKernel::emit() {
  k.threads = own / AttentionTiles::warpRows * KernelBuilder::warpSize;
  k.registers = 255;
  // A sequence has as many distances as queries, and the sums by distance are rows of the query set.
  struct Kind {
    int64_t heads;
    void (AttentionGradKernel::*body)(HeadOfSequence &at, Value start);
  };
  SmallVector<Kind> kinds;
  if (wantsQ)
    kinds.push_back({heads, &AttentionGradKernel::queryBlock});
  if (wantsK || wantsV)
    kinds.push_back({keyHeads, &AttentionGradKernel::keyBlocks});
  if (wantsBias)
    kinds.push_back({heads, &AttentionGradKernel::distanceBlock});
  int64_t parts = 0;
  for (const Kind &kind : kinds)
    parts += kind.heads;
  Value part = k.div(k.chunk, parts), rest = k.rem(k.chunk, parts);
  const int64_t mark = k.sharedMark();
  // A kind has as many consecutive parts as heads, so modulo that number they give each head once, wherever they begin.
  std::function<void(ArrayRef<Kind>, int64_t)> choose = [&](ArrayRef<Kind> kinds, int64_t before) {
    const Kind kind = kinds.front();
    auto first = [&] {
      k.releaseShared(mark);
      eachQueryBlockOfRows(k, part, k.rem(rest, kind.heads), own, [&](HeadOfSequence &at, Value start) {
        at.setReach(k, op.getReach(), /*cached=*/false);
        (this->*kind.body)(at, start);
      });
    };
    if (kinds.size() == 1)
      return first();
    k.when(k.less(rest, before + kind.heads), first, [&] { choose(kinds.drop_front(), before + kind.heads); });
  };
  if (!takesSequences) {
    choose(kinds, 0);
    return {{Partition::Unit::Rows, own, parts}};
  }
  eachQueryBlockOfRows(k, part, k.rem(rest, heads), own, [&](HeadOfSequence &at, Value start) {
    at.setReach(k, op.getReach(), /*cached=*/false);
    Value isOfKeys = k.less(heads - 1, rest), few = k.less(k.max(at.queries, at.keys), own + 1);
    k.when(
        k.both(few, k.less(0, at.keys)),
        [&] {
          Value isOdd = k.equal(k.rem(at.sequence, 2), 1);
          k.when(k.equal(isOdd, isOfKeys), [&] { sequence(at); });
        },
        [&] {
          k.when(
              isOfKeys,
              [&] {
                k.releaseShared(mark);
                keyBlocks(at, start);
              },
              [&] {
                k.releaseShared(mark);
                queryBlock(at, start);
              });
        });
  });
  return {{Partition::Unit::Rows, own, parts}};
}

// do . o of a query, computed by `lanes` adjacent lanes.
Value AttentionGradKernel::deltaOf(HeadOfSequence &at, Value query, int64_t lanes) {
  const View d = at.rows(k, dOutput, valueDim, k.i32Of(0))(query), o = at.rows(k, output, valueDim, k.i32Of(0))(query);
  Value first = k.bitAnd(k.thread(), lanes - 1);
  if (tiles.isDirect(dOutput, valueDim) && tiles.isDirect(output, valueDim) && valueDim % (4 * lanes) == 0) {
    SmallVector<Values> ds, os; // all loads are in flight before the first is used
    for (int64_t f = 0; f < valueDim; f += 4 * lanes) {
      Value own = k.add(k.mul(first, 4), f);
      ds.push_back(k.load(d + own, 4));
      os.push_back(k.load(o + own, 4));
    }
    Value sum = k.scalar(0);
    for (auto [d4, o4] : llvm::zip_equal(ds, os))
      for (auto [x, y] : llvm::zip_equal(d4, o4))
        sum = k.fma(x, y, sum);
    return k.warpSum(sum, lanes);
  }
  Value sum = k.loop(first, valueDim, lanes, ValueRange{k.scalar(0)}, [&](Value f, Values s) -> Values {
    Value y = k.load(o + f);
    return {k.fma(k.load(d + f), y, s[0])};
  })[0];
  return k.warpSum(sum, lanes);
}

AttentionGradKernel::Pairs AttentionGradKernel::makeTiles() {
  Pairs pairs;
  pairs.queries = tiles.tile(own, keyDim);
  pairs.dOutputs = tiles.tile(own, valueDim);
  pairs.keys = tiles.tiles(stages, passing, keyDim);
  pairs.values = tiles.tiles(stages, passing, valueDim);
  pairs.bias.emplace(k, tiles, DistanceTable::of(k, op), PairBias::Rows::queries, own, passing);
  return pairs;
}

// Begins to load the block of queries from `start` on, after a barrier.
void AttentionGradKernel::copyQueriesIn(HeadOfSequence &at, Pairs &pairs, Value start) {
  pairs.start = start;
  pairs.left = k.min(k.sub(at.queries, start), own);
  k.barrier(); // the tiles may still be in use for the previous block
  tiles.startCopy(pairs.queries, at.rows(k, q, keyDim, start), pairs.left, q, keyDim);
  tiles.startCopy(pairs.dOutputs, at.rows(k, dOutput, valueDim, start), pairs.left, dOutput, valueDim);
  Value last = k.sub(pairs.left, 1);
  RowAt lseAt = at.rows(k, lse, 1, k.i32Of(0));
  for (int64_t r = 0; r < 2; ++r) {
    Value row = k.add(start, k.min(tiles.row(r), last));
    pairs.rows[r] = row;
    Value limit = at.limit(k, row);
    pairs.limits[r] = k.select(k.less(tiles.row(r), pairs.left), limit, 0);
    pairs.firsts[r] = at.first(k, row);
    pairs.logSums[r] = k.mulf(k.load(lseAt(row)), std::numbers::log2e);
    pairs.deltas[r] = deltaOf(at, row, 4);
  }
  pairs.largestLimit = at.largestLimit(k, start, pairs.left, own);
  pairs.jointLimit = tiles.largestOfJointRows(pairs.limits, pairs.largestLimit);
}

// Begins to load keys and values from `start` on.
void AttentionGradKernel::copyKeysIn(HeadOfSequence &at, const Pairs &pairs, Value stage, Value start) {
  Value count = k.min(k.sub(at.keys, start), passing);
  const Tile keyTile = tiles.ofStage(pairs.keys, stage), valueTile = tiles.ofStage(pairs.values, stage);
  tiles.startCopy(keyTile, at.listedRows(k, key, keyDim, start), count, key, keyDim);
  tiles.startCopy(valueTile, at.listedRows(k, value, valueDim, start), count, value, valueDim);
}

std::pair<Values, Values> AttentionGradKernel::scoresAndChanges(AttentionTiles &tiles, const std::array<Tile, 2> &left,
                                                                const std::array<Tile, 2> &right, HeadOfSequence &at,
                                                                PairBias &bias) {
  std::pair<Values, Values> products;
  auto useScores = [&](Values scores) {
    products.first = tiles.scores(std::move(scores), scale);
    bias.add(at, products.first);
  };
  auto useChanges = [&](Values changes) { products.second = std::move(changes); };
  tiles.multiply(
      {{left[0], right[0], /*transposed=*/true, useScores}, {left[1], right[1], /*transposed=*/true, useChanges}});
  return products;
}

AttentionGradKernel::OfPairs AttentionGradKernel::gradientsOf(HeadOfSequence &at, Pairs &pairs, Value stage,
                                                              Value firstKey, Value count) {
  const Tile keyTile = tiles.ofStage(pairs.keys, stage), valueTile = tiles.ofStage(pairs.values, stage);
  auto [s, d] = scoresAndChanges(tiles, {pairs.queries, pairs.dOutputs}, {keyTile, valueTile}, at, *pairs.bias);
  PairDropout dropout(k, tiles, at, rate);
  Value kept = dropout.ofQueries(pairs.rows, firstKey, count, passing), factor = dropout.scale();
  Value first = k.add(firstKey, tiles.column(0));
  const Value seen[2] = {k.sub(pairs.limits[0], first), k.sub(pairs.limits[1], first)};
  const Value before[2] = {k.sub(pairs.firsts[0], first), k.sub(pairs.firsts[1], first)};
  OfPairs of;
  for (size_t i = 0; i < s.size(); ++i) {
    const int64_t r = AttentionTiles::rowOf(i);
    const int64_t column = AttentionTiles::columnOf(i);
    Value isSeen = k.less(column, seen[r]);
    if (at.reach)
      isSeen = k.both(isSeen, k.less(before[r], column + 1));
    Value p = k.select(isSeen, k.exp2(k.subf(s[i], pairs.logSums[r])), 0);
    of.scores.push_back(k.mulf(p, k.subf(k.mulf(dropout.dropped(d[i], kept, i), factor), pairs.deltas[r])));
    of.probabilities.push_back(dropout.dropped(p, kept, i));
  }
  return of;
}

// Writes the gradients of the queries, given what is still to be multiplied by the scale.
void AttentionGradKernel::writeQueryGradients(HeadOfSequence &at, const Pairs &pairs, const Values &dQueries) {
  Value factor = k.scalar(scale);
  tiles.copyOut(at.rows(k, op.getDq(), keyDim, pairs.start), dQueries, pairs.left, op.getDq(), keyDim,
                {factor, factor});
}

SmallVector<std::pair<BufferIndex, int64_t>> AttentionGradKernel::keyResults() {
  SmallVector<std::pair<BufferIndex, int64_t>> results;
  if (wantsK)
    results.push_back({op.getDk(), keyDim});
  if (wantsV)
    results.push_back({op.getDv(), valueDim});
  return results;
}

// All gradients of a sequence that has a key, and fits into one tile. The warps have 16 queries each until they have
// stored m p and ds in shared memory, whose columns are then the rows of the products for 16 keys each.
void AttentionGradKernel::sequence(HeadOfSequence &at) {
  Pairs pairs = makeTiles();
  Tile ofScores = tiles.tile(own, passing), ofProbabilities = tiles.tile(own, passing);
  Value zero = k.i32Of(0);
  copyQueriesIn(at, pairs, zero);
  copyKeysIn(at, pairs, zero, zero);
  at.clearRowsThatAreNoKeys(k, zero, at.keys, keyResults());
  tiles.finishCopies();
  pairs.bias->copyIn(at, zero, zero, at.keys);
  k.when(
      k.less(0, pairs.jointLimit),
      [&] {
        OfPairs of = gradientsOf(at, pairs, zero, zero, at.keys);
        tiles.store(of.scores, ofScores);
        tiles.store(of.probabilities, ofProbabilities);
        writeQueryGradients(at, pairs,
                            tiles.product({}, AttentionTiles::Left::rowsOf(of.scores, {}), pairs.keys, zero));
      },
      [&] {
        const Values none = tiles.zeros(passing);
        tiles.store(none, ofScores);
        tiles.store(none, ofProbabilities);
        writeQueryGradients(at, pairs, tiles.zeros(pairs.queries.width));
      });
  tiles.finishStores();
  k.when(k.less(tiles.firstJointRow(), at.keys), [&] {
    Value keyFactor = k.scalar(scale), valueFactor = PairDropout(k, tiles, at, rate).scale();
    auto writeKeys = [&](const Values &dKeys) {
      tiles.copyOut(at.listedRows(k, op.getDk(), keyDim, zero), dKeys, at.keys, op.getDk(), keyDim,
                    {keyFactor, keyFactor});
    };
    auto writeValues = [&](const Values &dValues) {
      tiles.copyOut(at.listedRows(k, op.getDv(), valueDim, zero), dValues, at.keys, op.getDv(), valueDim,
                    {valueFactor, valueFactor});
    };
    using Left = AttentionTiles::Left;
    tiles.multiply({{Left::columnsOf(ofScores), pairs.queries, /*transposed=*/false, writeKeys},
                    {Left::columnsOf(ofProbabilities), pairs.dOutputs, /*transposed=*/false, writeValues}});
  });
}

void AttentionGradKernel::queryBlock(HeadOfSequence &at, Value start) {
  at.shareKeys(k, heads / keyHeads);
  Pairs pairs = makeTiles();
  Tile room;
  if (!bf16)
    room = tiles.tile(own, passing);
  copyQueriesIn(at, pairs, start);
  const Values none = tiles.zeros(pairs.queries.width);
  Values sums = tiles.eachBlock(
      at.firstBlock(k, start, passing), pairs.largestLimit, passing, stages, none,
      [&](Value j, Value stage) { copyKeysIn(at, pairs, stage, j); },
      [&](Value j, Value stage, const Values &dQueries) {
        Value count = k.min(k.sub(at.keys, j), passing);
        pairs.bias->copyIn(at, start, j, count);
        return k.choose(
            k.less(j, pairs.jointLimit),
            [&] {
              Values ds = gradientsOf(at, pairs, stage, j, count).scores;
              const Tile keyTile = tiles.ofStage(pairs.keys, stage);
              return tiles.product(dQueries, AttentionTiles::Left::rowsOf(ds, room), keyTile, count);
            },
            [&] { return dQueries; });
      });
  writeQueryGradients(at, pairs, sums);
}

// A thread owns one of the distances from `start` on, in one direction, at which a query has at most one key. It adds
// in the order of the queries, which is also that of the keys.
void AttentionGradKernel::distanceBlock(HeadOfSequence &at, Value start) {
  at.shareKeys(k, heads / keyHeads);
  at.locateKeys(k);
  Pairs pairs = makeTiles();
  const int64_t stride = passing + 1; // adjacent threads read adjacent rows, in different banks
  const View gradients = k.at(k.shared(own * stride * 4)), positions = k.at(k.shared(passing * 4), k.i32);
  Value zero = k.i32Of(0);
  Value isBefore = k.less(k.thread(), own), row = k.rem(k.thread(), own), distance = k.add(start, row);
  Value ahead = k.select(isBefore, distance, k.sub(zero, distance)); // positions from a key forward to its query
  Value isFirst = k.equal(start, zero), end = k.add(start, own);
  Values none = {k.scalar(0)};
  Value sum = k.loop(zero, at.queries, own, none, [&](Value i, Values sum) {
    Value left = k.min(k.sub(at.queries, i), own), limit = at.largestLimit(k, i, left, own);
    // The ranges of the keys at these distances before a query of the block, and of those after one. If the distances
    // begin with 0, the first range covers both.
    Value from = at.queryPosition(k, i), to = k.add(from, left), first = at.first(k, i),
          beyond = k.sub(k.add(to, end), 1);
    auto begin = [&](Value position) { return k.max(at.keysBefore(k, position), first); };
    auto stop = [&](Value position) { return k.min(at.keysBefore(k, position), limit); };
    const std::array<Value, 2> begins = {begin(k.add(k.sub(from, end), 1)), begin(k.add(from, start))};
    const std::array<Value, 2> ends = {stop(k.select(isFirst, beyond, k.sub(to, start))),
                                       k.select(isFirst, zero, stop(beyond))};
    Value anyAfter = k.less(begins[1], ends[1]);
    return k.choose(
        k.either(k.less(begins[0], ends[0]), anyAfter),
        [&] {
          copyQueriesIn(at, pairs, i);
          return k.loop(zero, 2, 1, sum, [&](Value side, const Values &sum) {
            Value isFormer = k.equal(side, zero), begin = k.select(isFormer, begins[0], begins[1]),
                  end = k.select(isFormer, ends[0], ends[1]);
            // From the start of a block of keys, so that they can share dropout's random numbers.
            return k.loop(k.mul(k.div(begin, passing), passing), end, passing, sum, [&](Value j, const Values &sum) {
              Value count = k.min(k.sub(at.keys, j), passing);
              k.barrier();
              copyKeysIn(at, pairs, zero, j);
              k.acrossThreads(count, [&](Value c) {
                const View place = positions + c;
                k.store(at.keyPosition(k, k.add(j, c)), place);
              });
              tiles.finishCopies();
              pairs.bias->copyIn(at, pairs.start, j, count);
              Values ds = k.choose(
                  k.less(j, pairs.jointLimit), [&] { return gradientsOf(at, pairs, zero, j, count).scores; },
                  [&] { return tiles.zeros(passing); });
              for (int64_t r = 0; r < 2; ++r) {
                Value column = tiles.column(0);
                const View to = gradients + k.add(k.mul(tiles.row(r), stride), column);
                for (size_t n = 0; n < ds.size(); ++n)
                  if (AttentionTiles::rowOf(n) == r)
                    k.store(ds[n], to + AttentionTiles::columnOf(n));
              }
              k.barrier();
              Value last = k.min(k.sub(end, j), count);
              return k.loop(k.max(k.sub(begin, j), zero), last, 1, sum, [&](Value c, Values sum) -> Values {
                Value position = k.load(positions + c);
                Value query = k.sub(k.add(position, ahead), from);
                Value outside = k.notLess(query, pairs.left);
                Value place = k.add(k.mul(k.select(outside, zero, query), stride), c);
                Value ds = k.load(gradients + place);
                return {k.addf(sum[0], k.select(outside, 0, ds))};
              });
            });
          });
        },
        [&] { return sum; });
  })[0];
  k.when(k.less(distance, at.queries), [&] {
    // Distance 0 belongs to keys before the query, so the sum for keys 0 positions after it is 0.
    Value isAny = k.either(isBefore, k.less(zero, distance)), direction = k.select(isBefore, zero, 1);
    const View place = at.rows(k, op.getDbias(), 2, start)(row) + direction;
    k.store(k.select(isAny, sum, 0), place);
  });
}

// The owner of the n-th of a sequence's m blocks of queries takes the sequence's blocks of keys n, n + m, ..
void AttentionGradKernel::keyBlocks(HeadOfSequence &at, Value start) {
  Value blocks = k.div(k.add(at.queries, own - 1), own), step = k.mul(blocks, own);
  // If there are no keys, the first block still clears the rows.
  Value count = k.max(k.sub(k.max(at.keys, 1), start), 0);
  Value times = k.quotientUp(count, step);
  const auto results = keyResults();
  k.loop(0, times, 1, [&](Value i) {
    Value first = k.add(start, k.mul(i, step)), count = k.max(k.min(k.sub(at.keys, first), own), 0);
    at.clearRowsThatAreNoKeys(k, first, count, results);
    k.when(k.less(0, count), [&] { keyBlock(at, first, count); });
  });
}

void AttentionGradKernel::keyBlock(HeadOfSequence &at, Value start, Value count) {
  AttentionTiles tiles(k, core);
  Tile keyTile = tiles.tile(own, keyDim), valueTile = tiles.tile(own, valueDim);
  Tile queryTile = tiles.tile(passing, keyDim), dOutputTile = tiles.tile(passing, valueDim), room;
  if (!bf16)
    room = tiles.tile(own, passing);
  // The values of the current block of queries.
  auto perQuery = [&](Type type) { return k.at(k.shared(passing * 4), type); };
  const View logSums = perQuery(k.element), deltas = perQuery(k.element), limits = perQuery(k.i32);
  const View firsts = at.reach ? perQuery(k.i32) : View();
  PairBias bias(k, tiles, DistanceTable::of(k, op), PairBias::Rows::keys, own, passing);
  Value last = k.sub(count, 1);
  std::array<Value, 2> rows;
  for (int64_t r = 0; r < 2; ++r)
    rows[r] = k.add(start, k.min(tiles.row(r), last));
  Value firstJointKey = k.add(start, tiles.firstJointRow());
  k.barrier(); // the tiles may still be in use for the previous block
  tiles.startCopy(keyTile, at.listedRows(k, key, keyDim, start), count, key, keyDim);
  tiles.startCopy(valueTile, at.listedRows(k, value, valueDim, start), count, value, valueDim);
  const int64_t keyNumbers = tiles.zeros(keyTile.width).size();
  Values sums = tiles.zeros(keyTile.width + valueTile.width);
  sums = at.eachSharing(k, heads / keyHeads, sums, [&](const Values &sums) {
    PairDropout dropout(k, tiles, at, rate);
    return k.loop(0, at.queries, passing, sums, [&](Value i, Values sums) {
      Value left = k.min(k.sub(at.queries, i), passing), largest = at.largestLimit(k, i, left, passing);
      // Whether any query of the block sees a key that this block owns. All threads get the same answer.
      Value any = k.less(start, largest);
      if (at.reach) {
        Value end = k.add(start, count);
        any = k.both(any, k.less(at.first(k, i), end));
      }
      return k.choose(
          any,
          [&] {
            k.barrier();
            tiles.startCopy(queryTile, at.rows(k, q, keyDim, i), left, q, keyDim);
            tiles.startCopy(dOutputTile, at.rows(k, dOutput, valueDim, i), left, dOutput, valueDim);
            const int64_t lanes = k.threads / passing;
            Value mine = k.div(k.thread(), lanes), query = k.add(i, k.min(mine, k.sub(left, 1))),
                  delta = deltaOf(at, query, lanes);
            k.when(k.equal(k.rem(k.thread(), lanes), 0), [&] {
              const View logSum = logSums + mine;
              k.store(k.mulf(k.load(at.rows(k, lse, 1, k.i32Of(0))(query)), std::numbers::log2e), logSum);
              k.store(delta, deltas + mine);
              const View limit = limits + mine;
              Value ofQuery = at.limit(k, query);
              k.store(k.select(k.less(mine, left), ofQuery, 0), limit);
              if (at.reach) {
                const View first = firsts + mine;
                k.store(at.first(k, query), first);
              }
            });
            tiles.finishCopies();
            bias.copyIn(at, i, start, count);
            return k.choose(
                k.less(firstJointKey, largest),
                [&] {
                  auto [s, d] = scoresAndChanges(tiles, {keyTile, valueTile}, {queryTile, dOutputTile}, at, bias);
                  Value kept = dropout.ofKeys(rows, i, left, passing), factor = dropout.scale();
                  Values p = s;
                  for (size_t n = 0; n < s.size(); n += 4) {
                    auto ofColumns = [&](const View &list) {
                      return k.load(list + tiles.column(0) + AttentionTiles::columnOf(n), 2);
                    };
                    Values logSum = ofColumns(logSums), delta = ofColumns(deltas), limit = ofColumns(limits), first;
                    if (at.reach)
                      first = ofColumns(firsts);
                    for (size_t j = n; j < n + 4; ++j) {
                      Value number = k.add(start, tiles.row(AttentionTiles::rowOf(j))),
                            seen = k.less(number, limit[j % 2]);
                      if (at.reach)
                        seen = k.both(seen, k.less(first[j % 2], k.add(number, 1)));
                      Value probability = k.select(seen, k.exp2(k.subf(s[j], logSum[j % 2])), 0);
                      p[j] = dropout.dropped(probability, kept, j);
                      s[j] = k.mulf(probability, k.subf(k.mulf(dropout.dropped(d[j], kept, j), factor), delta[j % 2]));
                    }
                  }
                  Values dKeys(sums.begin(), sums.begin() + keyNumbers), dValues(sums.begin() + keyNumbers, sums.end());
                  std::vector<AttentionTiles::Product> products;
                  auto add = [&](Values &sums, const Values &rows, const Tile &b) {
                    auto use = [&sums](Values now) { sums = std::move(now); };
                    products.push_back(
                        {AttentionTiles::Left::rowsOf(rows, room), b, /*transposed=*/false, use, sums, left});
                  };
                  if (wantsV)
                    add(dValues, p, dOutputTile);
                  if (wantsK)
                    add(dKeys, s, queryTile);
                  tiles.multiply(products);
                  dKeys.append(dValues);
                  return dKeys;
                },
                [&] { return sums; });
          },
          [&] { return sums; });
    });
  });
  tiles.waitForCopies(); // those of the keys, if no query has seen one
  Value keyFactor = k.scalar(scale), valueFactor = PairDropout(k, tiles, at, rate).scale();
  if (wantsK)
    tiles.copyOut(at.listedRows(k, op.getDk(), keyDim, start), Values(sums.begin(), sums.begin() + keyNumbers), count,
                  op.getDk(), keyDim, {keyFactor, keyFactor});
  if (wantsV)
    tiles.copyOut(at.listedRows(k, op.getDv(), valueDim, start), Values(sums.begin() + keyNumbers, sums.end()), count,
                  op.getDv(), valueDim, {valueFactor, valueFactor});
}

} // namespace

static std::optional<KernelInfo> emitAttentionGrad(KernelBuilder &k, AttentionGradOp op) {
  return AttentionGradKernel(k, op).emit();
}

void attachAttentionGradKernels(MLIRContext &context) { attachKernels<emitAttentionGrad>(context); }

} // namespace xfc::gpu
