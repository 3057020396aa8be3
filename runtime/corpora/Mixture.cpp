// Mixes several corpora: decides how many pairs of each an epoch takes.
#include "corpora/Mixture.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace xfc {

int64_t Mixture::pairsOfEpoch() const { return std::accumulate(quotas.begin(), quotas.end(), int64_t(0)); }

Mixture mixtureByWeight(const std::vector<int64_t> &sizes, const std::vector<double> &weights) {
  const auto pairs = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t(0)));
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0; // of weights scaled to at most 1, so that it is finite
  for (double weight : weights)
    sum += weight / largest;
  Mixture mixture{sizes, {}};
  for (double weight : weights)
    mixture.quotas.push_back(std::max<int64_t>(std::llround(pairs * (weight / largest / sum)), 1));
  return mixture;
}

// Arivazhagan et al., 2019, section 4.2
Mixture mixtureByTemperature(const std::vector<int64_t> &sizes, double temperature) {
  const auto largest = static_cast<double>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<double> weights;
  weights.reserve(sizes.size());
  for (int64_t size : sizes)
    weights.push_back(std::pow(static_cast<double>(size) / largest, 1 / temperature));
  return mixtureByWeight(sizes, weights);
}

} // namespace xfc
