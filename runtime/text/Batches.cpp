// The pairs of a corpus in batches of tokens, in an order that depends on the seed and the epoch only.
#include "text/Batches.h"
#include <algorithm>
#include <bit>
#include <limits>
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

} // namespace

std::vector<std::vector<int64_t>> epochBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed,
                                               int64_t epoch) {
  std::seed_seq seeds{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(epoch)};
  std::mt19937_64 random(seeds);
  std::vector<int64_t> order(corpus.size());
  std::iota(order.begin(), order.end(), int64_t(0));
  shuffle(order, random);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return lengthClass(corpus, a) < lengthClass(corpus, b); });

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

Counts largestBatch(const Corpus &corpus, int64_t batchTokens) {
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  int64_t longest[2] = {0, 0}, shortest[2] = {none, none}, total[2] = {corpus.sourceTokens, corpus.targetTokens};
  for (size_t pair = 0; pair < corpus.size(); ++pair) {
    int64_t lengths[2] = {corpus.sourceLength(pair), corpus.targetLength(pair)};
    for (int set : {XFC_SOURCE, XFC_TARGET}) {
      longest[set] = std::max(longest[set], lengths[set]);
      shortest[set] = std::min(shortest[set], lengths[set]);
    }
  }
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

void Batches::seek(Position position) {
  if (planned != position.epoch)
    batches = epochBatches(corpus, batchTokens, seed, position.epoch);
  planned = position.epoch;
  at = position;
}

const std::vector<int64_t> &Batches::next() {
  if (at.batch >= batchesOfEpoch())
    seek({at.epoch + 1, 0});
  return batches[at.batch++];
}

} // namespace xfc
