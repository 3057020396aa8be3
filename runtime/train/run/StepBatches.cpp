// Takes the batches of each step from the epochs of a run, one step ahead of it.
#include "train/run/StepBatches.h"
#include "trace/Trace.h"
#include <algorithm>
#include <limits>
#include <utility>

namespace xfc {

StepBatches::StepBatches(const TrainingData &data, int64_t batchTokens, int64_t perStep, uint64_t seed,
                         const LengthOptions &length, const Engine &engine)
    : length(length), engine(engine), perStep(perStep), sampled(data.corpus().isSampled()),
      batches(data.corpus(), batchTokens, seed, data.mixture()) {}

bool StepBatches::lastEpochDone(Batches::Position position) const {
  return length.epochs >= 0 &&
         (position.epoch >= length.epochs || (position.epoch == length.epochs - 1 && batches.endsEpoch(position)));
}

double StepBatches::fractionOfEpochs(Batches::Position position) const {
  return length.epochs > 0 ? (position.epoch + batches.fractionOfEpoch(position)) / length.epochs : 0;
}

int64_t StepBatches::stepsOfEpochs() const {
  int64_t steps = 0;
  if (__builtin_mul_overflow(std::max<int64_t>(length.epochs, 0), (batches.batchesOfEpoch() + perStep - 1) / perStep,
                             &steps))
    return std::numeric_limits<int64_t>::max();
  return steps;
}

// Whether the run needs the pool after the one that batches are taken from, as far as its end is known.
bool StepBatches::goesBeyondPool(int64_t step) const {
  const int64_t left = batches.left();
  Batches::Position end = batches.position();
  end.batch += left;
  return !lastEpochDone(end) && (length.steps < 0 || length.steps - step - (ahead.count > 0) > left / perStep);
}

void StepBatches::take(Group &into) {
  const Span span(engine.trace(), "data", "choose batches");
  into.end = batches.position();
  for (into.count = 0; into.count < static_cast<size_t>(perStep) && !lastEpochDone(into.end); ++into.count) {
    if (into.count == into.batches.size())
      into.batches.emplace_back();
    into.batches[into.count] = batches.next();
    into.end = batches.position();
  }
}

const StepBatches::Group &StepBatches::next(int64_t step) {
  if (ahead.count > 0)
    std::swap(group, ahead);
  else
    take(group);
  ahead.count = 0;
  if (batches.left() >= perStep)
    take(ahead);
  if (goesBeyondPool(step))
    batches.planAhead();
  return group;
}

} // namespace xfc
