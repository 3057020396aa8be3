// Picks next tokens from one row of log-probabilities: the best few, or one at random.
#pragma once

#include "plan/Generation.h"
#include "plan/Plan.h"
#include <cstdint>
#include <span>
#include <vector>

namespace xfc {

// One row of log-probabilities, f32 or f64.
struct LogProbabilityRow {
  const void *data;
  bool isDouble;
  double operator[](int64_t token) const {
    return isDouble ? static_cast<const double *>(data)[token] : static_cast<const float *>(data)[token];
  }
};

struct Candidate {
  int32_t token;
  double logProbability;
};

// The `count` most probable of the tokens 0..vocabulary-1 that are not `excluded`, best first; of equal ones the lower
// token comes first. NaN is never picked.
void bestTokens(LogProbabilityRow row, int64_t vocabulary, std::span<const int32_t> excluded, int count,
                std::vector<Candidate> &best);

// The logarithm of the sum of the probabilities of the tokens 0..vocabulary-1 that are not `excluded`, which are in
// ascending order.
double logSumOfOthers(LogProbabilityRow row, int64_t vocabulary, std::span<const int32_t> excluded);

// Draws from the distribution that `generation` describes: probabilities raised to the power 1/temperature; of the topK
// most probable tokens (0: all); of these, the fewest that together have at least topP of their probability; of these,
// those that are at least minP times as probable as the best one; of these, those whose information -log p is nearest
// to the entropy, so many that they have at least typicalP; of these, those of a probability of at least epsilonCutoff,
// or else the best one. Each step divides by the sum of what it finds. Returns the token at which the cumulative
// distribution exceeds `uniform`, 0 <= uniform < 1; token -1 (log-probability -inf) if no token can be picked.
Candidate sampleToken(LogProbabilityRow row, int64_t vocabulary, std::span<const int32_t> excluded,
                      const Generation &generation, double uniform);

// A random number in [0, 1) for one sample of a sentence at one position; it does not depend on the batch.
double uniformNumber(uint64_t seed, uint32_t sentence, uint32_t position, uint32_t sample);

} // namespace xfc
