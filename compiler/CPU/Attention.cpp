// xfc.attention: scores, softmax, dropout and the weighted sum of values for each (sequence, head), without storing
// pairs tensors.
#include "Analysis/Kernels.h"
#include "AttentionTiles.h"
#include "Codegen/Softmax.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc {
namespace {

// Queries and keys per tile. For f32 heads of 64 features, 48 x 256 scores, the keys and the values take 200 KB
// together.
constexpr int64_t queryBlock = 48, keyBlock = 256;
constexpr int64_t scoreStride = keyBlock + 16; // not a power of two, so that rows spread over the cache's sets

class AttentionKernel {
public:
  AttentionKernel(KernelBuilder &k, AttentionOp op);
  KernelInfo emit();

private:
  int64_t distances() { return cast<RankedTensorType>(op.getBias().getType()).getDimSize(0); }
  void begin(HeadOfSequence &at);
  void blocks(HeadOfSequence &at);
  void eachOfOneList(const HeadOfSequence &at);
  void copyKeys(HeadOfSequence &at, Value start, Value count);
  void single(HeadOfSequence &at, Value fetches);
  RowAt ofNextHead(HeadOfSequence &at, BufferIndex buffer, int64_t width, Value start);
  Values dots(Value last, const RowAt &keyRow, Value first);
  void clearState(Value count);
  void softmaxRow(HeadOfSequence &at, Value firstQuery, Value r, Value start, Value count);
  void saveScores(HeadOfSequence &at, Value query, const View &row, Value start, Value count);
  void finish(HeadOfSequence &at, Value firstQuery, Value count);
  View area(int64_t elements) {
    View start = k.scratch + size;
    size += (elements + 31) / 32 * 32;
    return start;
  }

  KernelBuilder &k;
  AttentionOp op;
  AttentionTiles tiles;
  const int64_t heads, keyDim, valueDim;
  bool copiesKeys; // for a single query
  bool wantsLse, wantsWeights;
  // Rows of integers have scales, other rows have none.
  RowAt keyRows(HeadOfSequence &at, Value start) {
    return at.listedRows(k, key, keyDim, start, optionalBuffer(op.getKScaleMutable()));
  }
  RowAt valueRows(HeadOfSequence &at, Value start) {
    return at.listedRows(k, value, valueDim, start, optionalBuffer(op.getVScaleMutable()));
  }
  const BufferIndex q, key, value;
  int64_t size = 0; // elements of scratch
  View scores, queries, outputs, maxima, sums, factors, keysCopied, line;
  AttentionTiles::Right keysTransposed, values;
  std::optional<Distances> bias;
};

AttentionKernel::AttentionKernel(KernelBuilder &k, AttentionOp op)
    : k(k), op(op), tiles(k, op.getCompute(), std::max(op.getKeyDim(), keyBlock)),
      heads(static_cast<int64_t>(op.getHeads())), keyDim(op.getKeyDim()), valueDim(op.getValueDim()),
      q(op.getQMutable()), key(op.getKMutable()), value(op.getVMutable()) {
  wantsLse = !op.getLse().use_empty();
  wantsWeights = op.getWeights() && !op.getWeights().use_empty();
  // copyKeys() begins with the first key of the list, so there must be no limit of reach that excludes it.
  const bool narrow = key.element() != k.element || value.element() != k.element;
  copiesKeys = narrow && isDecodingStep(op) && op.getK().getType().getSet() != RowSet::cache && !op.getReach();
}

KernelInfo AttentionKernel::emit() {
  scores = area(queryBlock * scoreStride).inRows(scoreStride);
  queries = area(queryBlock * tiles.padded(keyDim)).inRows(tiles.padded(keyDim));
  auto elements = [&](int64_t count) { return area(count); };
  keysTransposed = tiles.right(elements, keyDim, keyBlock, scoreStride);
  if (copiesKeys)
    keysCopied = area(keyBlock * tiles.padded(keyDim)).inRows(tiles.padded(keyDim));
  values = tiles.right(elements, keyBlock, valueDim, tiles.padded(valueDim));
  outputs = area(queryBlock * tiles.padded(valueDim)).inRows(tiles.padded(valueDim));
  maxima = area(queryBlock);
  sums = area(queryBlock);
  factors = area(keyBlock);
  if (op.getBias())
    line = area(Distances::size(distances()));
  HeadOfSequence at = HeadOfSequence::ofChunk(k, heads);
  if (!copiesKeys)
    begin(at);
  k.when(
      k.equal(at.queries, 1), [&] { copiesKeys ? eachOfOneList(at) : single(at, k.boolean(true)); },
      [&] {
        if (copiesKeys)
          begin(at);
        tiles.prepare(elements, queryBlock);
        blocks(at);
      });
  return {{Partition::Unit::Sequences, 1, heads}, size * k.bytes()};
}

// Prepares a head of a sequence: its head of keys, the keys within reach, and its line of the bias. Comes before
// everything else that is emitted for the head.
void AttentionKernel::begin(HeadOfSequence &at) {
  at.shareKeys(k, heads / op.getKeyHeads());
  at.setReach(k, op.getReach(), op.getK().getType().getSet() == RowSet::cache);
  if (!line)
    return;
  bias.emplace(k, at, line, distances());
  bias->copyIn(op.getBiasMutable(), heads);
}

// Hypotheses of one sentence follow each other and have the same list of keys. The chunk of the first of them takes the
// same head of the others as well, whose chunks do nothing, so that narrow keys and values are read and widened once.
// Those of f32 are read in place by each: only the first hypothesis waits for memory, and the copy would cost the
// others more than it saves.
void AttentionKernel::eachOfOneList(const HeadOfSequence &at) {
  constexpr int64_t most = 8; // hypotheses of a chunk, so that many of one sentence make several chunks of a head
  Value number = k.rem(at.sequence, most), one = k.index(1);
  auto isOfList = [&](const HeadOfSequence &other) {
    Value starts = k.equal(other.listStart, at.listStart), ends = k.equal(other.keys, at.keys); // some lists are empty
    Value isList = k.both(starts, ends), isOne = k.equal(other.queries, one);
    return k.both(isList, isOne);
  };
  Value follows = k.choose(
      k.less(0, number),
      [&]() -> Values {
        HeadOfSequence before(k, k.sub(at.sequence, one), at.head);
        return {isOfList(before)};
      },
      [&]() -> Values { return {k.boolean(false)}; })[0];
  k.when(
      follows, [] {},
      [&] {
        Value all = k.field(k.rows(), offsetof(xfc_rows, sequences), k.i64), next = k.add(at.sequence, one);
        Value end = k.loop(next, k.min(k.add(k.sub(at.sequence, number), most), all), 1, next,
                           [&](Value i, Values s) -> Values {
                             HeadOfSequence other(k, i, at.head);
                             Value adjoins = k.equal(s[0], i), extends = k.both(adjoins, isOfList(other));
                             return {k.select(extends, k.add(i, one), s[0])};
                           })[0];
        k.loop(at.sequence, end, 1, [&](Value i) {
          HeadOfSequence own(k, i, at.head);
          begin(own);
          Value isFirst = k.equal(i, at.sequence), fits = k.less(own.keys, keyBlock + 1);
          k.when(k.both(isFirst, fits), [&] { copyKeys(own, k.index(0), own.keys); });
          single(own, isFirst);
        });
      });
}

void AttentionKernel::copyKeys(HeadOfSequence &at, Value start, Value count) {
  tiles.copyIn(keysCopied, keyRows(at, start), count, keyDim);
  tiles.copyIn(values.rows, valueRows(at, start), count, valueDim);
}

void AttentionKernel::clearState(Value count) {
  k.loop(0, count, 1, [&](Value r) {
    k.store(lowest, maxima + r);
    k.store(0, sums + r);
    View output = outputs.row(r);
    k.features(tiles.padded(valueDim), [&](Value f, int64_t used) { k.storePart(0, output + f, used); });
  });
}

void AttentionKernel::blocks(HeadOfSequence &at) {
  const double scale = op.getScale().convertToDouble();
  const int64_t valueVectors = tiles.padded(valueDim) / k.lanes();
  Value zero = k.index(0);
  k.loop(0, at.queries, queryBlock, [&](Value i) {
    Value rows = k.min(queryBlock, k.sub(at.queries, i));
    tiles.copyIn(queries, at.rows(k, q, keyDim, k.add(at.firstQuery, i)), rows, keyDim, scale);
    clearState(rows);
    Value most = at.largestLimit(k, i, rows), start = zero;
    // Blocks of keys are counted from the start of the list, regardless of the queries, so that a row's sums always
    // have the same order.
    if (at.reach)
      start = k.mul(k.div(at.first(k, i, zero), keyBlock), keyBlock);
    // The first block of queries packs the keys for all, even if it sees none itself.
    Value packed = k.min(at.keys, 1);
    most = k.max(most, k.select(k.equal(i, 0), packed, 0));
    k.loop(start, most, keyBlock, [&](Value j) {
      Value count = k.min(keyBlock, k.sub(most, j)), several = k.less(keyBlock, at.keys);
      // Keys that fit in one block are packed once for all queries; of several blocks, what these queries see.
      Value pack = k.either(k.equal(i, 0), several), all = k.select(several, count, at.keys);
      k.when(pack, [&] {
        tiles.transposeIn(keysTransposed.rows, keyRows(at, j), all, keyDim);
        tiles.copyIn(values.rows, valueRows(at, j), all, valueDim);
        tiles.round(keysTransposed, keyDim, tiles.vectorsOf(all));
        tiles.round(values, all, valueVectors);
      });
      tiles.product(queries, false, keysTransposed, scores, rows, tiles.vectorsOf(count), keyDim, false);
      k.loop(0, rows, 1, [&](Value r) {
        k.when(k.equal(j, 0),
               [&] { at.fetchNextHead(k, {{q, keyDim}}, {{key, keyDim}, {value, valueDim}}, k.add(i, r)); });
        softmaxRow(at, i, r, j, count);
      });
      tiles.product(scores, false, values, outputs, rows, valueVectors, count, true);
    });
    finish(at, i, rows);
  });
}

// For as many keys from `first` on as the registers allow, a vector whose lanes add up to the dot product of the query
// and the key. Keys after `last` repeat `last`.
Values AttentionKernel::dots(Value last, const RowAt &keyRow, Value first) {
  const int64_t lanes = k.lanes();
  KernelBuilder::SumLanes wide(k);
  const int64_t keys = std::min(lanes, k.registers() * lanes / (2 * k.lanes()));
  SmallVector<View> rows;
  for (int64_t i = 0; i < keys; ++i)
    rows.push_back(keyRow(k.min(k.add(first, i), last)));
  Values products(keys, k.splat(0));
  products = k.features(keyDim, products, [&](Value f, int64_t used, Values s) {
    Value x = tiles.rounded(k.load(queries + f, k.lanes()));
    for (int64_t i = 0; i < keys; ++i)
      s[i] = k.fma(x, tiles.rounded(k.loadPart(rows[i] + f, used)), s[i]);
    return s;
  });
  // The first steps of the reduction tree in `single`, until a product fits a register.
  for (Value &product : products)
    while (cast<VectorType>(product.getType()).getDimSize(0) > lanes) {
      auto [low, high] = k.halves(product);
      product = k.addf(low, high);
    }
  return products;
}

// The next head's features in the rows of the key list from `start` on; after the last head, the first head's in the
// rows of the next sentence, which mostly follow.
RowAt AttentionKernel::ofNextHead(HeadOfSequence &at, BufferIndex buffer, int64_t width, Value start) {
  Value distance = k.index(width);
  if (!at.cached) {
    const int64_t last = op.getKeyHeads() - 1;
    Value toNextSentence = k.sub(k.mul(at.keys, k.stride(buffer)), last * width);
    distance = k.select(k.equal(at.keyHead, last), toNextSentence, distance);
  }
  return [rows = at.listedRows(k, buffer, width, start), distance](Value c) { return rows(c) + distance; };
}

// A single query (decoding) reads keys and values row by row: packing them as `blocks` does would cost more than it
// saves. If it reads copies, the caller has made them, unless the list has several blocks: those are copied here. If
// `fetches` is set, the next head's keys are prefetched along with the scores, and its values with the outputs, so that
// memory is busy all the time.
void AttentionKernel::single(HeadOfSequence &at, Value fetches) {
  const int64_t lanes = k.lanes();
  Value zero = k.index(0), one = k.index(1);
  tiles.copyIn(queries, at.rows(k, q, keyDim, at.firstQuery), one, keyDim, op.getScale().convertToDouble());
  clearState(one);
  Value most = at.limit(k, zero, zero);
  k.loop(at.first(k, zero, zero), most, keyBlock, [&](Value j) {
    Value count = k.min(keyBlock, k.sub(most, j)), last = k.sub(count, 1);
    const RowAt nextKey = ofNextHead(at, key, keyDim, j), nextValue = ofNextHead(at, value, valueDim, j);
    RowAt keyRow, valueRow;
    if (copiesKeys) {
      k.when(k.less(keyBlock, at.keys), [&] { copyKeys(at, j, k.min(keyBlock, k.sub(at.keys, j))); });
      keyRow = [this](Value c) { return keysCopied.row(c); };
      valueRow = [this](Value c) { return values.rows.row(c); };
    } else {
      keyRow = keyRows(at, j);
      valueRow = valueRows(at, j);
    }
    // Processes as many keys at once as a vector has lanes: after a transposition, their horizontal sums are taken
    // together.
    k.loop(0, count, lanes, [&](Value c) {
      auto fetchKey = [&](Value each) { HeadOfSequence::fetch(k, nextKey(each), keyDim); };
      k.when(fetches, [&] { k.loop(c, k.min(k.add(c, lanes), count), 1, fetchKey); });
      Values products;
      while (static_cast<int64_t>(products.size()) < lanes)
        products.append(dots(last, keyRow, k.add(c, products.size())));
      k.transpose(products);
      for (int64_t half = lanes / 2; half >= 1; half /= 2)
        for (int64_t i = 0; i < half; ++i)
          products[i] = k.addf(products[i], products[i + half]);
      k.store(products[0], scores + c);
    });
    softmaxRow(at, zero, zero, j, count);
    constexpr int64_t together = 8;
    for (int64_t f = 0; f < valueDim; f += together * lanes) {
      Values accumulators;
      for (int64_t g = f; g < std::min(valueDim, f + together * lanes); g += lanes)
        accumulators.push_back(k.load(outputs + g, lanes));
      accumulators = k.loop(0, count, 1, accumulators, [&](Value c, Values s) {
        if (f == 0)
          k.when(fetches, [&] { HeadOfSequence::fetch(k, nextValue(c), valueDim); });
        Value weight = tiles.rounded(k.broadcast(k.load(scores + c)));
        View from = valueRow(c) + f;
        for (size_t g = 0; g < s.size(); ++g)
          s[g] = k.fma(weight, tiles.rounded(k.load(from + g * lanes, lanes)), s[g]);
        return s;
      });
      for (size_t g = 0; g < accumulators.size(); ++g)
        k.store(accumulators[g], outputs + (f + g * lanes));
    }
  });
  finish(at, zero, one);
}

// One step of the online softmax (Milakov and Gimelshein, 2018): the scores of keys start .. start + count - 1 become
// exp(score - maximum so far), or 0 where the query does not see the key; earlier sums are rescaled to the new maximum.
void AttentionKernel::softmaxRow(HeadOfSequence &at, Value firstQuery, Value r, Value start, Value count) {
  KernelBuilder::SumLanes wide(k);
  const int64_t lanes = k.lanes(), step = 2 * lanes;
  Value query = k.add(firstQuery, r);
  View row = scores.row(r);
  if (bias)
    bias->addTo(row, query, start, count);
  if (wantsWeights)
    saveScores(at, query, row, start, count);
  Value first = at.first(k, query, start), limit = at.limit(k, query, start), below = k.splat(lowest);
  auto eachTwo = [&](ValueRange state, const std::function<void(Value, const View &, Value &)> &body) {
    return k.loop(0, count, step, state, [&](Value j, Values s) {
      for (int64_t u = 0; u < 2; ++u) {
        Value lane = k.add(j, u * lanes);
        body(lane, row + lane, s[u]);
      }
      return s;
    });
  };
  Values largest = eachTwo({below, below}, [&](Value j, const View &place, Value &s) {
    Value x = at.seen(k, j, first, limit, k.load(place, lanes), below);
    k.store(x, place);
    s = k.maxf(x, s);
  });
  Value before = k.load(maxima + r), sumBefore = k.load(sums + r);
  Value maximum = k.maxf(k.largest(k.maxf(largest[0], largest[1])), before);
  Value reference = softmaxReference(k, maximum), references = k.broadcast(reference), zeros = k.splat(0);
  Values sum = eachTwo({zeros, zeros}, [&](Value, const View &place, Value &s) {
    Value x = k.exp(k.subf(k.load(place, lanes), references));
    k.store(x, place);
    s = k.addf(s, x);
  });
  Value shrink = k.exp(k.broadcast(k.subf(before, reference)));
  auto scale = [&](const View &place, Value factors) { k.store(k.mulf(k.load(place, lanes), factors), place); };
  k.when(k.less(0, start), [&] {
    View output = outputs.row(r);
    k.features(tiles.padded(valueDim), [&](Value f, int64_t) { scale(output + f, shrink); });
  });
  k.store(maximum, maxima + r);
  View sumAt = sums + r;
  Value sumOfBlock = k.sum(k.addf(sum[0], sum[1]));
  k.store(k.fma(sumBefore, k.lane(shrink, 0), sumOfBlock), sumAt);
  if (const double rate = op.getRate().convertToDouble(); rate > 0)
    k.when(k.training(), [&] {
      tiles.keepFactors(factors, at, query, start, count, rate);
      k.loop(0, count, lanes, [&](Value j) {
        View place = row + j;
        Value kept = k.load(factors + j, lanes);
        k.store(k.mulf(k.load(place, lanes), kept), place);
      });
    });
}

void AttentionKernel::saveScores(HeadOfSequence &at, Value query, const View &row, Value start, Value count) {
  View block = at.pairsRow(k, op.getWeights(), heads, query) + start;
  k.loop(0, count, k.lanes(), [&](Value j) {
    Value used = k.lanesBelow(j, count);
    View place = block + j;
    k.storeMasked(k.load(row + j, k.lanes()), place, used);
  });
}

// Divides the outputs by their sums, and stores the log-sum-exp and the weights if they are read.
void AttentionKernel::finish(HeadOfSequence &at, Value firstQuery, Value count) {
  RowFactor inverse = [&](Value r) { return softmaxScale(k, k.load(sums + r)); };
  tiles.copyOut(at.rows(k, op.getResult(), valueDim, k.add(at.firstQuery, firstQuery)), outputs, count, valueDim,
                inverse);
  if (!wantsLse && !wantsWeights)
    return;
  k.loop(0, count, 1, [&](Value r) {
    Value sum = k.load(sums + r), query = k.add(firstQuery, r), zero = k.index(0);
    Value logSum = k.choose(
        k.lessf(0, sum),
        [&]() -> Values {
          Value log = k.log(sum);
          return {k.addf(k.load(maxima + r), log)};
        },
        [&]() -> Values { return {k.scalar(0)}; })[0];
    if (wantsLse)
      k.store(logSum, at.rows(k, op.getLse(), 1, k.add(at.firstQuery, query))(zero));
    if (!wantsWeights)
      return;
    View block = at.pairsRow(k, op.getWeights(), heads, query);
    Value reference = k.broadcast(logSum), hidden = k.splat(0);
    Value first = at.first(k, query, zero), limit = at.limit(k, query, zero);
    k.loop(0, at.keys, k.lanes(), [&](Value j) {
      View place = block + j;
      Value p = k.exp(k.subf(k.load(place, k.lanes()), reference)), used = k.lanesBelow(j, at.keys);
      k.storeMasked(at.seen(k, j, first, limit, p, hidden), place, used);
    });
  });
}

} // namespace

static std::optional<KernelInfo> emitAttention(KernelBuilder &k, AttentionOp op) {
  if (!AttentionTiles::computesIn(k, op.getCompute()))
    return std::nullopt;
  return AttentionKernel(k, op).emit();
}

void attachAttentionKernels(MLIRContext &context) { attachKernels<emitAttention>(context); }

} // namespace xfc
