// Weighted means of what the members of an ensemble say.
#include "decode/Ensemble.h"
#include <cmath>

namespace xfc {

double logMean(std::span<const double> logProbabilities, std::span<const double> weights) {
  double largest = -HUGE_VAL;
  for (const double x : logProbabilities)
    if (x > largest)
      largest = x;
  if (!std::isfinite(largest)) // no member has a probability that is a number above 0
    largest = 0;
  // Both sums add the same numbers in the same order if all x are equal, and a product with a factor of at most 1
  // rounds to no more than the weight: so their ratio is 1 then, and never above it.
  double sum = 0, total = 0;
  for (size_t m = 0; m < weights.size(); ++m) {
    const double x = logProbabilities[m];
    sum += x == largest ? weights[m] : weights[m] * std::exp(x - largest); // the former is the same, and cheaper
    total += weights[m];
  }
  return largest + std::log(sum / total);
}

double mean(std::span<const double> numbers, std::span<const double> weights) {
  double above = 0, total = 0; // what the sum is above that of as many first numbers
  for (size_t m = 0; m < weights.size(); ++m) {
    above += weights[m] * (numbers[m] - numbers[0]);
    total += weights[m];
  }
  return numbers[0] + above / total;
}

} // namespace xfc
