// Mixes several corpora: decides how many pairs of each an epoch takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xfc {

// Consecutive corpora, and how many pairs an epoch takes from each. Successive epochs pass through a corpus again and
// again, in a different order each time: no pair is repeated before every pair of the corpus has been used once, and
// later epochs continue where an epoch stops. Without any corpus, every epoch takes every pair once.
struct Mixture {
  std::vector<int64_t> sizes;  // pairs of each corpus
  std::vector<int64_t> quotas; // pairs taken from it per epoch; at least one
  bool empty() const { return sizes.empty(); }
  int64_t pairsOfEpoch() const; // over all corpora; about the number of pairs that they have
};

// Each corpus gets a share of the epoch in proportion to its weight, which is positive.
Mixture mixtureByWeight(const std::vector<int64_t> &sizes, const std::vector<double> &weights);
// Each corpus gets a share in proportion to its fraction of all pairs, to the power of 1/temperature: 1 keeps the
// proportions of the corpora, larger temperatures bring the shares closer together.
Mixture mixtureByTemperature(const std::vector<int64_t> &sizes, double temperature);

} // namespace xfc
