// Which models decode together, and weighted means of what they say.
#include "decode/Ensemble.h"
#include <algorithm>
#include <cmath>
#include <tuple>

namespace xfc {

bool Ensemble::readsHistory() const {
  return std::ranges::any_of(engines, [](const Engine *engine) { return engine->module().readsHistory(); });
}

void requireFits(const Module &first, const Module &other, const std::string &name) {
  other.requireTranslator();
  const auto fail = [&](const std::string &message) { throw Error(name + ": model '" + other.model + "' " + message); };
  const std::string but = ", but model '" + first.model + "' ";
  for (const auto &[what, its, expected] :
       {std::tuple<const char *, int64_t, int64_t>{"source tokens", other.sourceVocab, first.sourceVocab},
        {"target tokens", other.targetVocab, first.targetVocab},
        {"as pad", other.pad, first.pad},
        {"as start", other.start, first.start},
        {"as eos", other.eos, first.eos}})
    if (its != expected)
      fail("has " + std::to_string(its) + " " + what + but + "has " + std::to_string(expected) +
           "; expected a model with the same vocabularies and special tokens");
  if (other.sourceEos != first.sourceEos)
    fail(std::string("reads lines with") + (other.sourceEos ? "" : "out") + " eos at their end" + but + "with" +
         (first.sourceEos ? "" : "out") + " it; expected a model with the same source_eos");
  for (const auto &[what, its, needed] : {std::tuple{"source", other.maxLength, first.maxLength},
                                          {"target", other.maxTargetLength, first.maxTargetLength}})
    if (its > 0 && (needed == 0 || its < needed))
      fail("takes sentences of " + std::to_string(its) + " " + what + " tokens" + but + "takes " +
           (needed > 0 ? std::to_string(needed) : "any number") +
           "; expected one that takes as many: use its executable, and this model's library beside it, or compile it "
           "with a larger max_length");
}

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
