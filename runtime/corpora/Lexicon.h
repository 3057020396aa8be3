// Which target tokens translate a source token, and how probably, counted in parallel text.
#pragma once

#include "corpora/PairBlock.h"
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace xfc {

// For each source token, target tokens in ascending order with p(target token | source token).
using Lexicon = std::vector<std::vector<std::pair<int32_t, float>>>;

// A pair of lines as tokens, and what links them.
struct LexiconPair {
  std::vector<int32_t> source, target;
  std::vector<Link> links = {};
};

// The shares of the target tokens to which a source token is linked.
Lexicon lexiconOfLinks(std::span<const LexiconPair> pairs, int64_t sourceVocabulary);
// Of pairs without links: IBM model 1 (Brown et al. 1993), in so many iterations of expectation and maximization from
// equal probabilities. Each target token comes from one of the source's tokens, or from none of them.
Lexicon lexiconOfPairs(std::span<const LexiconPair> pairs, int64_t sourceVocabulary, int iterations);

} // namespace xfc
