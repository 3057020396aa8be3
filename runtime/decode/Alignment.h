// How a model's decoder looks at the source while it writes a target: cross-attention, and alignments read off it.
#pragma once

#include "engine/Engine.h"
#include <span>
#include <utility>
#include <vector>

namespace xfc {

// Cross-attention of the decoder's last layer, averaged over heads. Row j is the row that predicts target token j;
// the last row predicts eos. Columns are source tokens; pads the model does not look at are 0.
struct CrossAttention {
  int64_t targets = 0, sources = 0; // targets = tokens + 1
  std::vector<double> weights;      // [targets, sources]
  double at(int64_t target, int64_t source) const { return weights[target * sources + source]; }
};

// `source` as the encoder reads it (eos included), `target` without start and eos. Throws Error for a model without
// cross-attention.
CrossAttention crossAttention(Engine &engine, std::span<const int32_t> source, std::span<const int32_t> target);

// For each target token (eos left out) the first of `sources` source tokens it attends to most: pairs of (source,
// target). `first` is the place of source token 0, behind what stands before a line's own tokens.
std::vector<std::pair<int64_t, int64_t>> hardAlignment(const CrossAttention &attention, int64_t sources,
                                                       int64_t first = 0);

} // namespace xfc
