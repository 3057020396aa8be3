// Rescoring: what one model has found is put in the order in which another one, such as one that writes lines from
// their end, finds it probable, too. A translation y of x has the score
//
//   (log p(y | x) + w log q(y | x)) / penalty(n)
//
// where p is the model that searched, q the one that rescores, and penalty() that of the search (decode/BeamSearch.h).
#pragma once

#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include <span>
#include <vector>

namespace xfc {

// Orders what a search has found for each of the sources, the best first; equal ones stay in their order. Keeps at most
// `nBest` of each. The model has a rescorer; `weight` is w.
void rescore(const TranslationModel &model, std::span<const std::vector<int32_t>> sources, const SearchOptions &options,
             Format format, double weight, int nBest, std::vector<std::vector<Hypothesis>> &found);

} // namespace xfc
