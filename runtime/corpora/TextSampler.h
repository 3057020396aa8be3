// Segments the text of a corpus at random, differently in each epoch.
#pragma once

#include "corpora/PairReader.h"

namespace xfc {

// The alphas of SegmentationSampling for sources and targets, 0 where a side keeps its best segmentation, and the seed.
struct EpochSampling {
  double alphas[2] = {0, 0};
  uint64_t seed = 1;
  bool any() const { return alphas[0] > 0 || alphas[1] > 0; }
};

class TextSampler {
public:
  // The vocabularies must outlive this. Throws an Error that names the vocabulary if it cannot sample.
  TextSampler(const VocabularyPair &vocabularies, const Module &module, const EpochSampling &sampling);
  bool samples(int side) const { return sampling.alphas[side] > 0; } // XFC_SOURCE or XFC_TARGET
  // The ids of a line, after these ids, as PairReader returns them, for a side that samples. The segmentation depends
  // on the line, the seed, the epoch, the number of the pair and the side only. May be called by several threads at a
  // time.
  std::vector<int32_t> sample(std::string_view line, std::span<const int32_t> prefix, size_t pair, int side,
                              int64_t epoch) const;
  // The length of the shortest sequence, as CorpusTotals counts.
  int64_t shortest(int side) const;

private:
  const Vocabulary &vocabulary(int side) const {
    return side == XFC_SOURCE ? vocabularies.source : vocabularies.target;
  }

  VocabularyPair vocabularies;
  EpochSampling sampling;
  Frame frames[2]; // without the prefixes of files
};

} // namespace xfc
