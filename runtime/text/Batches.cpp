// The pairs of a corpus in batches of tokens, in an order that depends on the seed, the epoch and the data only.
#include "text/Batches.h"
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <random>

namespace xfc {
namespace {

// std::shuffle may differ between libraries; this does not.
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

int64_t blocksOf(const Corpus &corpus) { return (static_cast<int64_t>(corpus.size()) + blockPairs - 1) / blockPairs; }

// Pairs in the order of their lengths' classes, and within a class as they were.
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

int64_t poolsOf(const Corpus &corpus) { return std::max<int64_t>((blocksOf(corpus) + poolBlocks - 1) / poolBlocks, 1); }

std::vector<std::vector<int64_t>> poolBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                              int64_t pool) {
  const int64_t pools = poolsOf(corpus), blockCount = blocksOf(corpus);
  std::vector<int64_t> blocks(static_cast<size_t>(blockCount));
  std::iota(blocks.begin(), blocks.end(), int64_t(0));
  if (pools > 1) {
    std::mt19937_64 random = generator(seed, epoch, {0xffffffff});
    shuffle(blocks, random);
  }
  corpus.release();
  std::vector<int64_t> order;
  for (int64_t i = blockCount * pool / pools; i < blockCount * (pool + 1) / pools; ++i) {
    const int64_t first = blocks[i] * blockPairs,
                  last = std::min(first + blockPairs, static_cast<int64_t>(corpus.size()));
    corpus.check(first, last);
    order.resize(order.size() + static_cast<size_t>(last - first));
    std::iota(order.end() - (last - first), order.end(), first);
  }
  std::mt19937_64 random =
      pool == 0 ? generator(seed, epoch, {}) : generator(seed, epoch, {static_cast<uint32_t>(pool)});
  shuffle(order, random);
  order = byLengthClass(corpus, order);

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

std::vector<std::vector<int64_t>> epochBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed,
                                               int64_t epoch) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t pool = 0; pool < poolsOf(corpus); ++pool)
    for (std::vector<int64_t> &batch : poolBatches(corpus, batchTokens, seed, epoch, pool))
      all.push_back(std::move(batch));
  return all;
}

Counts largestBatch(const Corpus &corpus, int64_t batchTokens) {
  const auto &longest = corpus.totals().longest, &shortest = corpus.totals().shortest, &total = corpus.totals().tokens;
  Counts counts;
  int64_t sequences = corpus.size();
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    counts.rows[set] = std::min(std::max(batchTokens, longest[set]), total[set]);
    sequences = std::min(sequences, std::max<int64_t>(counts.rows[set] / shortest[set], 1));
  }
  counts.sequences[XFC_SOURCE] = counts.sequences[XFC_TARGET] = sequences;
  counts.longest = std::max(longest[XFC_SOURCE], longest[XFC_TARGET]);
  // A pair of sequences has as many (query, key) pairs as the product of their lengths.
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

bool Batches::seek(Position position) {
  if (position.pool >= pools)
    return false;
  if (plannedEpoch != position.epoch || plannedPool != position.pool)
    batches = poolBatches(corpus, batchTokens, seed, position.epoch, position.pool);
  plannedEpoch = position.epoch;
  plannedPool = position.pool;
  at = position;
  return at.batch <= batchesOfPool();
}

const std::vector<int64_t> &Batches::next() {
  if (left() == 0)
    seek(at.pool + 1 < pools ? Position{at.epoch, 0, at.pool + 1} : Position{at.epoch + 1, 0, 0});
  return batches[static_cast<size_t>(at.batch++)];
}

double Batches::fractionOfEpoch(Position position) const {
  return (static_cast<double>(position.pool) +
          static_cast<double>(position.batch) / static_cast<double>(batchesOfPool())) /
         static_cast<double>(pools);
}

int64_t Batches::batchesOfEpoch() const {
  int64_t count = 0;
  for (int64_t pool = 0; pool < pools; ++pool)
    count += pool == plannedPool
                 ? batchesOfPool()
                 : static_cast<int64_t>(poolBatches(corpus, batchTokens, seed, plannedEpoch, pool).size());
  return count;
}

} // namespace xfc
