// What a training run is told: one struct for each of its parts.
#include "train/run/TrainOptions.h"
#include <algorithm>
#include <array>

namespace xfc {

EpochSampling DataOptions::sampling(uint64_t seed) const {
  EpochSampling sampling{.seed = seed};
  if (!segmentationAlphas.empty())
    std::ranges::copy(std::array{segmentationAlphas.front(), segmentationAlphas.back()}, sampling.alphas);
  return sampling;
}

} // namespace xfc
