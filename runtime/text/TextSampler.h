// Keeps the text of a corpus, and segments it at random, differently in each epoch.
#pragma once

#include "text/PairReader.h"

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
  // Appends the lines of a pair, and the frames of their tokens.
  void add(std::string_view source, std::string_view target, const Frame &sourceFrame, const Frame &targetFrame);
  bool samples(int side) const { return sampling.alphas[side] > 0; } // XFC_SOURCE or XFC_TARGET
  // The ids of a line as PairReader returns them, for a side that samples. They depend on the seed, the epoch, the
  // number of the pair and the side only. May be called by several threads at a time.
  std::vector<int32_t> sample(size_t pair, int side, int64_t epoch) const;
  // The length of the shortest sequence, as CorpusTotals counts.
  int64_t shortest(int side) const;

private:
  struct Block { // of blockPairs pairs; `ends` is the number of bytes up to the end of each line
    std::vector<size_t> ends;
    std::string bytes;
  };
  std::string_view line(size_t pair, int side) const;
  const Vocabulary &vocabulary(int side) const {
    return side == XFC_SOURCE ? vocabularies.source : vocabularies.target;
  }

  VocabularyPair vocabularies;
  EpochSampling sampling;
  int64_t shortestSequences[2];
  // The frames of the pairs from `first` on.
  struct Framed {
    size_t first;
    Frame frames[2];
  };
  std::vector<Framed> framed;
  size_t count = 0;
  std::vector<Block> blocks;
};

} // namespace xfc
