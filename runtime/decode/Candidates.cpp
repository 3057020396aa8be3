// Picks next tokens from one row of log-probabilities: the best few, or one at random.
#include "decode/Candidates.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace xfc {

namespace {

bool isExcluded(std::span<const int32_t> excluded, int64_t token) {
  return std::find(excluded.begin(), excluded.end(), token) != excluded.end();
}

template <typename T>
void bestOf(const T *row, int64_t vocabulary, std::span<const int32_t> excluded, size_t count,
            std::vector<Candidate> &best) {
  // Few tokens beat the worst of the best so far; a loop that vectorizes skips whole blocks.
  constexpr int64_t block = 64;
  double threshold = -std::numeric_limits<double>::infinity();
  for (int64_t begin = 0; begin < vocabulary; begin += block) {
    int64_t end = std::min(begin + block, vocabulary);
    T limit = static_cast<T>(threshold);
    int passing = 0;
    for (int64_t token = begin; token < end; ++token)
      passing |= row[token] > limit;
    if (!passing)
      continue;
    for (int64_t token = begin; token < end; ++token) {
      double value = row[token];
      if (!(value > threshold) || isExcluded(excluded, token))
        continue;
      // The comparison is strict, so of equal values the lower token, which came first, stays first.
      auto at = std::upper_bound(best.begin(), best.end(), value,
                                 [](double v, const Candidate &c) { return v > c.logProbability; });
      best.insert(at, {static_cast<int32_t>(token), value});
      if (best.size() > count)
        best.pop_back();
      if (best.size() == count)
        threshold = best.back().logProbability;
    }
  }
}

template <typename T> double logSumOf(const T *row, int64_t vocabulary, std::span<const int32_t> excluded) {
  const auto eachRange = [&](const auto &visit) { // of tokens that are not excluded
    int64_t begin = 0;
    for (int32_t token : excluded) {
      visit(row + begin, row + std::max<int64_t>(begin, token));
      begin = std::max<int64_t>(begin, token + 1);
    }
    visit(row + begin, row + vocabulary);
  };
  T largest = -std::numeric_limits<T>::infinity();
  eachRange([&](const T *x, const T *end) {
    for (; x < end; ++x)
      largest = std::max(largest, *x);
  });
  // Even 2^40 smaller numbers would not change the sum.
  constexpr double negligible = 64;
  double sum = 0;
  eachRange([&](const T *x, const T *end) {
    for (; x < end; ++x)
      if (const double below = static_cast<double>(*x) - largest; below > -negligible)
        sum += std::exp(below);
  });
  return largest + std::log(sum);
}

} // namespace

double logSumOfOthers(LogProbabilityRow row, int64_t vocabulary, std::span<const int32_t> excluded) {
  return row.isDouble ? logSumOf(static_cast<const double *>(row.data), vocabulary, excluded)
                      : logSumOf(static_cast<const float *>(row.data), vocabulary, excluded);
}

void bestTokens(LogProbabilityRow row, int64_t vocabulary, std::span<const int32_t> excluded, int count,
                std::vector<Candidate> &best) {
  best.clear();
  if (row.isDouble)
    bestOf(static_cast<const double *>(row.data), vocabulary, excluded, count, best);
  else
    bestOf(static_cast<const float *>(row.data), vocabulary, excluded, count, best);
}

namespace {

// Tokens to draw from, with probabilities up to a factor.
struct Draw {
  std::vector<Candidate> tokens;
  std::vector<double> weights;

  double sum() const { return std::accumulate(weights.begin(), weights.end(), 0.0); }
  double largest() const { return *std::ranges::max_element(weights); }
  // Keeps the tokens for which `holds`, of a weight, is true, in their order.
  template <typename Holds> void keep(Holds holds) {
    size_t kept = 0;
    for (size_t i = 0; i < tokens.size(); ++i)
      if (holds(weights[i])) {
        tokens[kept] = tokens[i];
        weights[kept++] = weights[i];
      }
    tokens.resize(kept);
    weights.resize(kept);
  }

  // Keeps the fewest tokens from the beginning that have at least this share of the sum. To be called while the most
  // probable tokens come first.
  void keepTop(double share) {
    const double all = sum();
    double kept = 0;
    size_t count = 0;
    while (count < tokens.size() && (count == 0 || kept < share * all))
      kept += weights[count++];
    tokens.resize(count);
    weights.resize(count);
  }

  void keepTypical(double share) {
    const double all = sum();
    double entropy = 0;
    for (const double weight : weights)
      if (weight > 0)
        entropy -= weight / all * std::log(weight / all);
    const auto distance = [&](double weight) { return std::abs(-std::log(weight / all) - entropy); };
    std::vector<std::pair<double, double>> nearest; // distance and weight
    nearest.reserve(weights.size());
    for (const double weight : weights)
      nearest.emplace_back(distance(weight), weight);
    std::ranges::sort(nearest);
    double kept = 0, farthest = 0;
    for (const auto &[away, weight] : nearest) {
      if (kept >= share * all)
        break;
      kept += weight;
      farthest = away;
    }
    keep([&](double weight) { return distance(weight) <= farthest; });
  }
};

} // namespace

Candidate sampleToken(LogProbabilityRow row, int64_t vocabulary, std::span<const int32_t> excluded,
                      const Generation &generation, double uniform) {
  Draw draw;
  if (generation.topK > 0 && generation.topK < vocabulary) {
    bestTokens(row, vocabulary, excluded, static_cast<int>(generation.topK), draw.tokens);
  } else {
    draw.tokens.reserve(vocabulary);
    for (int64_t token = 0; token < vocabulary; ++token)
      if (double value = row[token]; value > -std::numeric_limits<double>::infinity() && !isExcluded(excluded, token))
        draw.tokens.push_back({static_cast<int32_t>(token), value});
    if (generation.topP < 1)
      std::stable_sort(draw.tokens.begin(), draw.tokens.end(),
                       [](const Candidate &a, const Candidate &b) { return a.logProbability > b.logProbability; });
  }
  if (draw.tokens.empty())
    return {-1, -std::numeric_limits<double>::infinity()};

  double largest = draw.tokens.front().logProbability;
  for (const Candidate &token : draw.tokens)
    largest = std::max(largest, token.logProbability);
  if (!std::isfinite(largest)) // the weights are broken
    return draw.tokens.front();
  draw.weights.reserve(draw.tokens.size());
  for (const Candidate &token : draw.tokens)
    draw.weights.push_back(std::exp((token.logProbability - largest) / generation.temperature));

  if (generation.topP < 1)
    draw.keepTop(generation.topP);
  if (generation.minP > 0)
    draw.keep([least = generation.minP * draw.largest()](double weight) { return weight >= least; });
  if (generation.typicalP < 1)
    draw.keepTypical(generation.typicalP);
  if (generation.epsilonCutoff > 0)
    draw.keep([least = std::min(generation.epsilonCutoff * draw.sum(), draw.largest())](double weight) {
      return weight >= least;
    });

  const double target = uniform * draw.sum();
  double passed = 0;
  for (size_t i = 0; i < draw.tokens.size(); ++i) {
    passed += draw.weights[i];
    if (target < passed)
      return draw.tokens[i];
  }
  return draw.tokens.back(); // only when rounding makes uniform * sum reach the sum
}

double uniformNumber(uint64_t seed, uint32_t sentence, uint32_t position, uint32_t sample) {
  const uint32_t counter[4] = {position, sample, sentence, 0};
  const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t words[4];
  xfc_philox(counter, key, words);
  uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

} // namespace xfc
