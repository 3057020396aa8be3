// Log-probabilities of given target sentences, through the program score.
#pragma once

#include "decode/Ensemble.h"
#include <functional>
#include <vector>

namespace xfc {

inline constexpr int64_t scoreBatchTokens = 4096; // the default

// The log-probabilities of the tokens of targets (without start and eos), and then of eos, given their sources as the
// encoder reads them. Batches have at most `batchTokens` source tokens and as many target tokens; the result does not
// depend on them. `beforePass` is called before each batch; what it throws ends the computation.
std::vector<std::vector<double>> tokenScores(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources,
                                             const std::vector<std::vector<int32_t>> &targets, int64_t batchTokens,
                                             const std::function<void()> &beforePass = {});

// The log-probabilities of whole targets: the sums of those of their tokens.
std::vector<double> score(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources,
                          const std::vector<std::vector<int32_t>> &targets, int64_t batchTokens);

} // namespace xfc
