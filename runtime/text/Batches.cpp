// Groups the pairs of a corpus into batches by token count, in an order that depends only on the seed, the epoch and
// the data.
#include "text/Batches.h"
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <random>

namespace xfc {
namespace {

// std::shuffle may differ between standard libraries; this does not.
template <typename T> void shuffle(std::vector<T> &values, std::mt19937_64 &random) {
  for (size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[random() % i]);
}

int lengthClass(const Corpus &corpus, int64_t pair) {
  return std::bit_width(static_cast<uint64_t>(std::max(corpus.sourceLength(pair), corpus.targetLength(pair))));
}

std::mt19937_64 generator(uint64_t seed, int64_t epoch, std::initializer_list<uint32_t> of) {
  std::vector<uint32_t> seeds = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                                 static_cast<uint32_t>(epoch)};
  seeds.insert(seeds.end(), of);
  std::seed_seq sequence(seeds.begin(), seeds.end());
  return std::mt19937_64(sequence);
}

// Pairs that go to one pool of an epoch: from a block, or from a corpus that is smaller than one, in the order of this
// pass through it.
struct Piece {
  int64_t first, size; // the block
  int64_t pass;        // how many complete passes came before
  int64_t from, to;    // the positions taken in the order; from `size` on, in the order of the next pass
};

// A generator whose seed includes the first pair of a block or a corpus.
std::mt19937_64 generatorOf(uint64_t seed, int64_t pass, uint32_t what, int64_t first) {
  return generator(seed, pass, {what, static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32)});
}
enum : uint32_t { orderOfBlocks = 0xffffffff, orderOfCorpus = 0xfffffffe, orderInBlock = 0xfffffffd };

void addBlocks(std::vector<Piece> &pieces, int64_t first, int64_t size, int64_t pass) {
  for (int64_t at = 0; at < size; at += blockPairs)
    pieces.push_back({first + at, std::min(blockPairs, size - at), pass, 0, std::min(blockPairs, size - at)});
}

// Adds the pairs that epoch number `epoch` takes from a corpus that contributes `quota` pairs to each epoch.
void addTurn(std::vector<Piece> &pieces, int64_t first, int64_t size, int64_t quota, uint64_t seed, int64_t epoch) {
  const int64_t begin = epoch * quota, end = begin + quota; // in the sequence of all pairs that it gives to all epochs
  if (size <= blockPairs) {
    for (int64_t at = begin; at < end; at += blockPairs)
      pieces.push_back({first, size, at / size, at % size, at % size + std::min(blockPairs, end - at)});
    return;
  }
  for (int64_t pass = begin / size; pass * size < end; ++pass) {
    std::vector<Piece> blocks;
    addBlocks(blocks, first, size, pass);
    std::mt19937_64 random = generatorOf(seed, pass, orderOfCorpus, first);
    shuffle(blocks, random);
    int64_t at = pass * size;
    for (Piece &block : blocks) {
      block.from = std::max(begin - at, int64_t(0));
      block.to = std::min(end - at, block.size);
      if (block.from < block.to)
        pieces.push_back(block);
      at += block.size;
    }
  }
}

std::vector<Piece> piecesOf(const Corpus &corpus, const Mixture &mixture, uint64_t seed, int64_t epoch) {
  std::vector<Piece> pieces;
  if (mixture.empty())
    addBlocks(pieces, 0, static_cast<int64_t>(corpus.size()), epoch);
  for (int64_t i = 0, first = 0; i < std::ssize(mixture.sizes); first += mixture.sizes[i++])
    addTurn(pieces, first, mixture.sizes[i], mixture.quotas[i], seed, epoch);
  return pieces;
}

// Appends the numbers of the piece's pairs.
void append(std::vector<int64_t> &order, const Piece &piece, uint64_t seed) {
  std::vector<int64_t> block(static_cast<size_t>(piece.size));
  for (int64_t at = piece.from; at < piece.to;) {
    const int64_t pass = piece.pass + at / piece.size, from = at % piece.size,
                  count = std::min(piece.size - from, piece.to - at);
    std::iota(block.begin(), block.end(), piece.first);
    if (count < piece.size) {
      std::mt19937_64 random = generatorOf(seed, pass, orderInBlock, piece.first);
      shuffle(block, random);
    }
    order.insert(order.end(), block.begin() + from, block.begin() + from + count);
    at += count;
  }
}

// Sorts pairs by the class of their lengths, stably.
std::vector<int64_t> byLengthClass(const Corpus &corpus, const std::vector<int64_t> &pairs) {
  std::vector<uint8_t> classes(pairs.size());
  std::array<size_t, 66> begin{};
  for (size_t i = 0; i < pairs.size(); ++i) {
    classes[i] = static_cast<uint8_t>(lengthClass(corpus, pairs[i]));
    ++begin[classes[i] + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<int64_t> sorted(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i)
    sorted[begin[classes[i]]++] = pairs[i];
  return sorted;
}

} // namespace

int64_t poolsOf(const Corpus &corpus, const Mixture &mixture) {
  const int64_t pairs = mixture.empty() ? static_cast<int64_t>(corpus.size()) : mixture.pairsOfEpoch(),
                most = poolBlocks * blockPairs;
  return std::max<int64_t>((pairs + most - 1) / most, 1);
}

// The pairs of a pool, shuffled, and the generator that shuffles its batches.
static std::pair<std::vector<int64_t>, std::mt19937_64> poolOrder(const Corpus &corpus, uint64_t seed, int64_t epoch,
                                                                  int64_t pool, const Mixture &mixture) {
  std::vector<Piece> pieces = piecesOf(corpus, mixture, seed, epoch);
  const int64_t pools = poolsOf(corpus, mixture), count = std::ssize(pieces);
  if (pools > 1) {
    std::mt19937_64 random = generator(seed, epoch, {orderOfBlocks});
    shuffle(pieces, random);
  }
  corpus.release();
  std::vector<int64_t> order;
  for (int64_t i = count * pool / pools; i < count * (pool + 1) / pools; ++i) {
    corpus.check(pieces[i].first, pieces[i].first + pieces[i].size);
    append(order, pieces[i], seed);
  }
  std::mt19937_64 random =
      pool == 0 ? generator(seed, epoch, {}) : generator(seed, epoch, {static_cast<uint32_t>(pool)});
  shuffle(order, random);
  return {std::move(order), random};
}

static std::vector<std::vector<int64_t>> batchesOf(const Corpus &corpus, const std::vector<int64_t> &shuffled,
                                                   int64_t batchTokens, std::mt19937_64 &random) {
  const std::vector<int64_t> order = byLengthClass(corpus, shuffled);
  std::vector<std::vector<int64_t>> batches;
  int64_t sources = 0, targets = 0;
  for (int64_t pair : order) {
    sources += corpus.sourceLength(pair);
    targets += corpus.targetLength(pair);
    if (batches.empty() || sources > batchTokens || targets > batchTokens) {
      batches.emplace_back();
      sources = corpus.sourceLength(pair);
      targets = corpus.targetLength(pair);
    }
    batches.back().push_back(pair);
  }
  shuffle(batches, random);
  return batches;
}

std::vector<std::vector<int64_t>> poolBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                              int64_t pool, const Mixture &mixture) {
  auto [order, random] = poolOrder(corpus, seed, epoch, pool, mixture);
  return batchesOf(corpus, order, batchTokens, random);
}

std::vector<std::vector<int64_t>> epochBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                               const Mixture &mixture) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t pool = 0; pool < poolsOf(corpus, mixture); ++pool)
    for (std::vector<int64_t> &batch : poolBatches(corpus, batchTokens, seed, epoch, pool, mixture))
      all.push_back(std::move(batch));
  return all;
}

Counts largestBatch(const Corpus &corpus, int64_t batchTokens, const Mixture &mixture) {
  const CorpusTotals bounds = corpus.bounds();
  const auto &longest = bounds.longest, &shortest = bounds.shortest;
  // If each pair occurs at most once in a batch, the totals of the corpus bound it, and otherwise those of an epoch:
  // however large batchTokens is, the products below are those of numbers that occur.
  const bool once = mixture.empty();
  Counts counts;
  int64_t sequences = once ? static_cast<int64_t>(corpus.size()) : mixture.pairsOfEpoch();
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    const int64_t total = once ? bounds.tokens[set] : mixture.pairsOfEpoch() * longest[set];
    counts.rows[set] = std::min(std::max(batchTokens, longest[set]), total);
    sequences = std::min(sequences, std::max<int64_t>(counts.rows[set] / shortest[set], 1));
  }
  counts.sequences[XFC_SOURCE] = counts.sequences[XFC_TARGET] = sequences;
  counts.longest = std::max(longest[XFC_SOURCE], longest[XFC_TARGET]);
  // A sentence pair has as many (query, key) pairs as the product of its lengths.
  auto pairs = [&](int queries, int keys) {
    return std::min(counts.rows[queries] * longest[keys], longest[queries] * counts.rows[keys]);
  };
  const std::pair<int, int64_t> relations[] = {{XFC_SOURCE_SOURCE, pairs(XFC_SOURCE, XFC_SOURCE)},
                                               {XFC_TARGET_TARGET, pairs(XFC_TARGET, XFC_TARGET)},
                                               {XFC_TARGET_SOURCE, pairs(XFC_TARGET, XFC_SOURCE)}};
  for (auto [relation, most] : relations)
    for (int variant = 0; variant < 4; ++variant)
      counts.pairs[XFC_KEYS(relation, variant / 2, variant % 2)] = most;
  return counts;
}

PairsOfCorpus pairsOf(const Corpus &corpus, std::vector<int64_t> pairs) {
  return {std::shared_ptr<const Corpus>(std::shared_ptr<void>(), &corpus), std::move(pairs)};
}

std::vector<PairsOfCorpus> Batches::plan(int64_t epoch, int64_t pool) const {
  auto [order, random] = poolOrder(corpus, seed, epoch, pool, mixture);
  std::shared_ptr<const Corpus> of = pairsOf(corpus, {}).corpus;
  if (corpus.isSampled()) {
    of = std::make_shared<const Corpus>(corpus.sampled(order, epoch));
    std::iota(order.begin(), order.end(), 0);
    corpus.release(); // of this pool, everything is in what was sampled
  }
  std::vector<PairsOfCorpus> planned;
  for (std::vector<int64_t> &pairs : batchesOf(*of, order, batchTokens, random))
    planned.push_back({of, std::move(pairs)});
  return planned;
}

const std::vector<PairsOfCorpus> &Batches::planned() const {
  if (plannedEpoch != at.epoch || plannedPool != at.pool) {
    batches.clear(); // frees a sampled pool that no one else uses
    batches = plan(at.epoch, at.pool);
    plannedEpoch = at.epoch;
    plannedPool = at.pool;
  }
  return batches;
}

bool Batches::seek(Position position) {
  if (position.pool >= pools)
    return false;
  at = position;
  return at.batch <= batchesOfPool();
}

const PairsOfCorpus &Batches::next() {
  if (left() == 0)
    seek(at.pool + 1 < pools ? Position{at.epoch, 0, at.pool + 1} : Position{at.epoch + 1, 0, 0});
  return planned()[static_cast<size_t>(at.batch++)];
}

double Batches::fractionOfEpoch(Position position) const {
  return (static_cast<double>(position.pool) +
          static_cast<double>(position.batch) / static_cast<double>(batchesOfPool())) /
         static_cast<double>(pools);
}

int64_t Batches::batchesOfEpoch() const {
  int64_t count = 0;
  for (int64_t pool = 0; pool < pools; ++pool)
    count += pool == at.pool && !corpus.isSampled()
                 ? batchesOfPool()
                 : std::ssize(poolBatches(corpus, batchTokens, seed, at.epoch, pool, mixture));
  return count;
}

} // namespace xfc
