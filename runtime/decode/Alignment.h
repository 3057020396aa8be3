// How a model's decoder attends to the source while it writes a target: cross-attention, and alignments derived from
// it.
#pragma once

#include "engine/Engine.h"
#include <span>
#include <utility>
#include <vector>

namespace xfc {

// Cross-attention of the decoder's last layer, averaged over heads. Row j predicts target token j; the last row
// predicts eos. Columns are source tokens; those of masked pads are 0.
struct CrossAttention {
  int64_t targets = 0, sources = 0; // targets = tokens + 1
  std::vector<double> weights;      // [targets, sources]
  double at(int64_t target, int64_t source) const { return weights[target * sources + source]; }
};

// `source` as the encoder reads it (eos included), `target` without start and eos. Throws Error for a model without
// cross-attention.
CrossAttention crossAttention(Engine &engine, std::span<const int32_t> source, std::span<const int32_t> target);

// For each target token (without eos), the source token that it attends to most, the first of equal ones: pairs of
// (source, target). Source tokens 0 .. sources - 1 are the columns from `first` on, which skips what the vocabulary
// puts before a line.
std::vector<std::pair<int64_t, int64_t>> hardAlignment(const CrossAttention &attention, int64_t sources,
                                                       int64_t first = 0);

} // namespace xfc
