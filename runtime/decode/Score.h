// Log-probabilities of given target sentences, through the program score.
#pragma once

#include "engine/Engine.h"
#include <vector>

namespace xfc {

// Of each target (without start and eos; its eos is counted), given its source as the encoder reads it. Batches of at
// most so many source tokens and so many target tokens; the result does not depend on them.
std::vector<double> score(Engine &engine, const std::vector<std::vector<int32_t>> &sources,
                          const std::vector<std::vector<int32_t>> &targets, int64_t batchTokens);

} // namespace xfc
