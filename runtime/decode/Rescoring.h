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

// What a search is to give so that these options can choose among it: all of the beam if the model has a rescorer.
SearchOptions searchedFor(const TranslationModel &model, SearchOptions options);

// If the model has a rescorer, orders what a search has found for each of the sources, the best first; equal ones stay
// in their order. Keeps at most the nBest of each that the options ask for, in which w is `rescoreWeight`.
void rescore(const TranslationModel &model, std::span<const std::vector<int32_t>> sources, const SearchOptions &options,
             Format format, std::span<std::vector<Hypothesis>> found);

} // namespace xfc
