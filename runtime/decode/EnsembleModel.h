// An ensemble as a decoder sees it: one model, each of whose steps is a step of every member.
#pragma once

#include "decode/Decoder.h"
#include <memory>
#include <vector>

namespace xfc {

// Averages the probabilities of the members (decode/Ensemble.h), which have the same vocabulary, take no shorter
// targets than the first and, asked as if their requests were constrained, give all log-probabilities. A step gives
// what the search needs: a few candidates with their means, or the means of all tokens. `weights`: one for each member.
// If there is a pool, its threads average the rows of different hypotheses.
std::unique_ptr<SearchedModel> ensembleModel(std::vector<std::unique_ptr<SearchedModel>> members,
                                             std::vector<double> weights, ThreadPool *pool);

} // namespace xfc
