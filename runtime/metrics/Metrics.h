// BLEU, chrF and TER as sacreBLEU 2 computes them (13a tokenizer, exp smoothing; chrF2: character order 6, word order
// 0; TER on lower-cased words separated by white space).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace xfc {

struct Score {
  double value;          // 0..100; TER may exceed 100
  std::string signature; // nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...
};

// What BLEU is computed from: of n-grams of words for n = 1 .. 4, how many the hypothesis has, and how many of these
// the reference has, too.
struct WordMatches {
  std::array<int64_t, 4> correct{}, total{};
  int64_t hypothesisLength = 0, referenceLength = 0; // words
};
// What chrF is computed from: n-grams of characters without white space, for n = 1 .. 6. Those of a hypothesis whose
// reference is shorter than n are not counted.
struct CharacterMatches {
  std::array<int64_t, 6> inHypothesis{}, inReference{}, matching{};
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
  WordMatches words;
  CharacterMatches characters;
  int64_t edits = 0, referenceWords = 0, count = 0;
};

// Throws Error for lists of different lengths.
MetricSums metricsOf(const std::vector<std::string> &hypotheses, const std::vector<std::string> &references);

// How good a line is as a translation if another is right: sacreBLEU's sentence_chrf and sentence_bleu, which counts
// n-grams only as far as the line has some (effective order). 0..100.
enum class Utility : uint8_t { Chrf, Bleu };

// For each line, the mean of its utilities if each of the lines, itself included, is the right one.
std::vector<double> expectedUtilities(Utility utility, std::span<const std::string> lines);

} // namespace xfc
