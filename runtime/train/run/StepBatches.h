// Takes the batches of each step from the epochs of a run, one step ahead of it.
#pragma once

#include "corpora/Batches.h"
#include "engine/Engine.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainingData.h"
#include <cstdint>
#include <span>
#include <vector>

namespace xfc {

class StepBatches {
public:
  // A step has `perStep` batches of at most `batchTokens` tokens, or fewer at the end of the last epoch. What is taken
  // is traced as the engine is. The data, the engine and the length must outlive this.
  StepBatches(const TrainingData &data, int64_t batchTokens, int64_t perStep, uint64_t seed,
              const LengthOptions &length, const Engine &engine);

  // The batches of a step; kept between steps, so that steps do not allocate.
  struct Group {
    std::vector<PairsOfCorpus> batches;
    size_t count = 0;
    Batches::Position end; // the position after them
    std::span<const PairsOfCorpus> span() const { return std::span(batches).first(count); }
  };
  // The batches of step number `step`. Takes those of the step after it, too, which are prepared while the device
  // computes, but not across the end of an epoch or pool, which must be handled first; and begins to plan the next pool
  // if the run will need it. The group stays valid until the next call. Throws Error if pairs in files are damaged.
  const Group &next(int64_t step);
  // The batches of the step after the last one; none if they are not known yet.
  std::span<const PairsOfCorpus> upcoming() const { return ahead.span(); }
  // The next step is not the one after the last: forgets what was taken ahead.
  void forgetAhead() { ahead.count = 0; }

  // Continues from a position; false if an epoch has no such position.
  bool seek(Batches::Position position) { return batches.seek(position); }
  // Whether the last epoch ends there.
  bool lastEpochDone(Batches::Position position) const;
  // Of all epochs together, the fraction before the position; 0 if their number has no limit.
  double fractionOfEpochs(Batches::Position position) const;
  // The steps of all epochs. Counting them may take a pass through all data.
  int64_t stepsOfEpochs() const;
  int64_t poolsOfEpoch() const { return batches.poolsOfEpoch(); }

  // Whether epochs draw segmentations of their text, and a hash of those of the current pool.
  bool areSampled() const { return sampled; }
  uint64_t hashOfPool() const { return batches.hashOfPool(); }

private:
  void take(Group &group);
  bool goesBeyondPool(int64_t step) const;

  const LengthOptions &length;
  const Engine &engine;
  const int64_t perStep;
  const bool sampled;
  Batches batches;
  Group group, ahead;
};

} // namespace xfc
