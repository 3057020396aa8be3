// Decides when a run ends: after its steps, epochs or minutes, without improvement, by a signal, or because of what
// could not be logged.
#include "train/run/StopCriteria.h"
#include "support/Signals.h"
#include <algorithm>

namespace xfc {

double StopCriteria::seconds(const Progress &progress) const {
  return progress.seconds + std::chrono::duration<double>(Clock::now() - started).count();
}

// All ranks take the maximum over them of one number that encodes stop, time limit and save. A run that ends saves
// anyway.
void StopCriteria::decide(const Progress &progress, bool cannotLog) {
  const double minutes = options.length.minutes;
  const bool late = ranks.isFirst() && minutes >= 0 && seconds(progress) >= 60 * minutes;
  const bool stops = interrupted() || cannotLog;
  const int decision = ranks.largest(4 * stops + 2 * late + saveRequested());
  stopping = decision / 4 != 0;
  timeIsUp = decision / 2 % 2;
  saveWanted |= decision % 2 != 0;
}

bool StopCriteria::finished(const Progress &progress) const {
  const int64_t steps = options.length.steps, patience = options.validation.earlyStop;
  return stopping || timeIsUp || (steps >= 0 && progress.step >= steps) || batches.lastEpochDone(progress.position) ||
         (patience > 0 && progress.withoutImprovement >= patience);
}

double StopCriteria::fractionDone(const Progress &progress) const {
  const LengthOptions &length = options.length;
  double fraction = batches.fractionOfEpochs(progress.position);
  if (length.steps > 0)
    fraction = std::max(fraction, static_cast<double>(progress.step) / length.steps);
  if (length.minutes > 0)
    fraction = std::max(fraction, seconds(progress) / (60 * length.minutes));
  return fraction;
}

} // namespace xfc
