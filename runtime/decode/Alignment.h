// How a model's decoder attends to the source while it writes a target: cross-attention, and alignments derived from
// it.
#pragma once

#include "decode/Ensemble.h"
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace xfc {

// Cross-attention of the decoder's last layer, averaged over heads, and of an ensemble over its members. Row j predicts
// target token j; if eos follows, the last row predicts it. Columns are source tokens; those of masked pads are 0.
struct CrossAttention {
  int64_t targets = 0, sources = 0;
  std::vector<double> weights; // [targets, sources]
  double at(int64_t target, int64_t source) const { return weights[target * sources + source]; }
};

// Throws Error if one of the models is without cross-attention, which says that what is wanted needs it: an option.
void requireCrossAttention(const Ensemble &models, const std::string &wanted);

// `source` as the encoder reads it (eos included), `target` without start and eos, which follows if `eos`. Throws Error
// for a model without cross-attention.
CrossAttention crossAttention(const Ensemble &models, std::span<const int32_t> source, std::span<const int32_t> target,
                              bool eos = true);

// For each target token (without eos), of which there are `targets`, the source token that it attends to most, the
// first of equal ones: pairs of (source, target). Source tokens 0 .. sources - 1 are the columns from `first` on, which
// skips what the vocabulary puts before a line.
using HardAlignment = std::vector<std::pair<int64_t, int64_t>>;
HardAlignment hardAlignment(const CrossAttention &attention, int64_t targets, int64_t sources, int64_t first = 0);

} // namespace xfc
