// Several corpora: how much of each an epoch gives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xfc {

// Corpora that follow each other, and how many pairs an epoch has of each. Whoever goes through epoch after epoch walks
// through a corpus over and over, in another order each time: no pair of it comes twice before all of it has come once,
// and what an epoch leaves comes in the next ones. Without any corpus: every epoch has every pair once.
struct Mixture {
  std::vector<int64_t> sizes;  // pairs of each corpus
  std::vector<int64_t> quotas; // pairs of it in an epoch; at least one
  bool empty() const { return sizes.empty(); }
  int64_t pairsOfEpoch() const; // of all corpora, about as many as they have
};

// Each has a part of the epoch in proportion to its weight, which is positive.
Mixture mixtureByWeight(const std::vector<int64_t> &sizes, const std::vector<double> &weights);
// In proportion to the part that it has of all pairs, to the power of 1/temperature: 1 takes the corpora as they are,
// larger ones make them equal.
Mixture mixtureByTemperature(const std::vector<int64_t> &sizes, double temperature);

} // namespace xfc
