// Translation edit rate (Snover et al., 2006): counts the edits that turn a translation into its reference.
#pragma once

#include <cstdint>
#include <span>

namespace xfc {

// How many edits turn the hypothesis into the reference: words inserted, deleted or substituted, and runs of words
// moved together. Equal words have equal numbers. Finding the minimum is hard; this is the result of Tercom's
// heuristics, as sacreBLEU 2 computes it: runs are moved one after the other, each time the one that saves most, and
// the edit distance is computed only in a band around the diagonal.
int64_t translationEdits(std::span<const int32_t> hypothesis, std::span<const int32_t> reference);

} // namespace xfc
