// Runs given targets through the decoder, with their sources, in batches.
#pragma once

#include "engine/Batch.h"
#include <functional>
#include <vector>

namespace xfc {

// Calls use(pairs, batch) for batches of at most `batchTokens` source tokens and as many target tokens, or of a single
// longer pair, until each pair has been in one: `pairs` are the numbers of its pairs, in the order of its rows. Longer
// targets come first. `inputs` are what the decoder reads: for each target, start and the target without its eos.
using UseOfBatch = std::function<void(std::span<const size_t> pairs, Batch &batch)>;
void inBatches(const std::vector<std::vector<int32_t>> &sources, const std::vector<std::vector<int32_t>> &inputs,
               int64_t batchTokens, int32_t pad, const UseOfBatch &use);

} // namespace xfc
