// What a search's settings choose by once it has ended: the utility of samples (decode/MinimumRisk.h), or scores with a
// penalty for what the attention has left out of the source.
#pragma once

#include "decode/Alignment.h"
#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include <span>
#include <vector>

namespace xfc {

// The coverage of a source (Wu et al. 2016, equation 14, without its factor):
//
//   sum_i log(min(sum_j p_ij, 1))
//
// where p_ij is the attention to source token i when target token j is written. As in CTranslate2, eos is none of these
// tokens j, unless nothing else is written, and a source token to which no attention is paid at all, such as a masked
// one, does not count. `targets`: how many tokens there are without eos.
double coverage(const CrossAttention &attention, size_t targets);

// The translations that the settings choose among those that a search has found for a source as the encoder reads it:
// the nBest, best first. Lines are compared as they are written in this format. A coverage penalty takes a pass of the
// decoder for each of those that were found.
std::vector<Hypothesis> chosen(const TranslationModel &model, std::span<const int32_t> source,
                               std::vector<Hypothesis> found, const SearchOptions &options, Format format);

} // namespace xfc
