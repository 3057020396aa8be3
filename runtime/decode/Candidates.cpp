// Picks next tokens from one row of log-probabilities: the best few, or one at random.
#include "decode/Candidates.h"
#include <algorithm>
#include <cmath>
#include <limits>

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

Candidate sampleToken(LogProbabilityRow row, int64_t vocabulary, std::span<const int32_t> excluded,
                      const Sampling &sampling, double uniform) {
  std::vector<Candidate> tokens;
  if (sampling.topK > 0 && sampling.topK < vocabulary) {
    bestTokens(row, vocabulary, excluded, sampling.topK, tokens);
  } else {
    tokens.reserve(vocabulary);
    for (int64_t token = 0; token < vocabulary; ++token)
      if (double value = row[token]; value > -std::numeric_limits<double>::infinity() && !isExcluded(excluded, token))
        tokens.push_back({static_cast<int32_t>(token), value});
    if (sampling.topP < 1)
      std::stable_sort(tokens.begin(), tokens.end(),
                       [](const Candidate &a, const Candidate &b) { return a.logProbability > b.logProbability; });
  }
  if (tokens.empty())
    return {-1, -std::numeric_limits<double>::infinity()};

  double largest = tokens.front().logProbability;
  for (const Candidate &token : tokens)
    largest = std::max(largest, token.logProbability);
  std::vector<double> weights(tokens.size());
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i)
    sum += weights[i] = std::exp((tokens[i].logProbability - largest) / sampling.temperature);

  if (sampling.topP < 1) {
    double kept = 0;
    size_t count = 0;
    while (count < tokens.size() && (count == 0 || kept < sampling.topP * sum))
      kept += weights[count++];
    tokens.resize(count);
    sum = kept;
  }
  double target = uniform * sum, passed = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    passed += weights[i];
    if (target < passed)
      return tokens[i];
  }
  return tokens.back(); // only when rounding makes uniform * sum reach the sum
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
