// What a training run takes of memory: said before it starts, kept within a limit, and reserved.
#pragma once

#include "plan/Memory.h"
#include "support/Progress.h"
#include "train/run/HeldOut.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainedModel.h"
#include "train/run/TrainingData.h"
#include <cstdint>
#include <string>
#include <vector>

namespace xfc {

// Concerns one rank alone, but for `ranks`, how many there are: they share the optimizer's states.
class MemoryNeeds {
public:
  // All of these must outlive this.
  MemoryNeeds(const TrainOptions &options, int ranks, const TrainedModel &model, const TrainingData &data,
              const HeldOut &heldOut);
  // The largest batches, in multiples of 16 tokens, for which BatchOptions::memory has room. Throws Error if it has
  // none for the smallest ones.
  int64_t largestBatchTokens() const;
  // Allocates all memory of the steps up front, so that a run that has started does not fail for lack of memory, and
  // says how much that is. Throws Error if the device has less left.
  void reserve(int64_t batchTokens, ProgressBar &bar) const;

private:
  Memory forBatches(int64_t tokens) const;
  int64_t bytesOfStates(const Module &module) const;
  Counts countsFor(int64_t tokens) const;
  int64_t bytesOfLists(int64_t tokens) const;
  std::vector<std::string> programsOfSteps() const;

  const TrainOptions &options;
  const int ranks;
  const TrainedModel &model;
  const TrainingData &data;
  const HeldOut &heldOut;
};

} // namespace xfc
