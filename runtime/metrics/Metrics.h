// BLEU, chrF and TER as sacreBLEU 2 computes them (13a tokenizer, exp smoothing; chrF2: character order 6, word order
// 0; TER on lower-cased words separated by white space).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace xfc {

struct Score {
  double value;          // 0..100; TER may exceed 100
  std::string signature; // nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...
};

// Accumulates the statistics of any number of lines, holding one line in memory.
class MetricSums {
public:
  void add(const std::string &hypothesis, const std::string &reference);
  Score bleu() const;
  Score chrf() const;
  Score ter() const; // smaller is better
  int64_t lines() const { return count; }

private:
  void addEdits(const std::string &hypothesis, const std::string &reference);
  static constexpr size_t words = 4, characters = 6; // the longest n-grams
  std::array<int64_t, words> correct{}, total{};
  int64_t hypothesisLength = 0, referenceLength = 0, count = 0;
  std::array<int64_t, characters> inHypothesis{}, inReference{}, matching{};
  int64_t edits = 0, referenceWords = 0;
};

// Throws Error for lists of different lengths.
MetricSums metricsOf(const std::vector<std::string> &hypotheses, const std::vector<std::string> &references);

} // namespace xfc
