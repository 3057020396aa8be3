// Translation edit rate (Snover et al., 2006): the edits that make a reference of a translation.
#pragma once

#include <cstdint>
#include <span>

namespace xfc {

// How many words are inserted, deleted or substituted, or moved together as a run of words, to make the reference of
// the hypothesis, where equal words have equal numbers. Finding the fewest is hard; this is what Tercom's heuristics
// find, as sacreBLEU 2 computes them: runs are moved one after the other, each time the one that saves most, and the
// edit distance looks at places close to the diagonal only.
int64_t translationEdits(std::span<const int32_t> hypothesis, std::span<const int32_t> reference);

} // namespace xfc
