// Decides when a run ends: after its steps, epochs or minutes, without improvement, by a signal, or because of what
// could not be logged.
#pragma once

#include "ranks/Ranks.h"
#include "train/Checkpoint.h"
#include "train/run/StepBatches.h"
#include "train/run/TrainOptions.h"
#include <chrono>

namespace xfc {

class StopCriteria {
public:
  // All of these must outlive this.
  StopCriteria(const TrainOptions &options, const StepBatches &batches, Ranks &ranks)
      : options(options), batches(batches), ranks(ranks) {}
  // The time of this part of the run begins.
  void startClock() { started = Clock::now(); }
  // Of training, over all parts of a resumed run.
  double seconds(const Progress &progress) const;

  // Decides whether a signal, a log that cannot be written or the time limit ends the run, and whether a signal asks
  // for a save. Ranks notice these at different times but must stop at the same step: all call this at the same time.
  void decide(const Progress &progress, bool cannotLog);
  // Whether the run ends before its time, as decided.
  bool isStopping() const { return stopping; }
  // Whether a signal has asked for a save, until saved() is called.
  bool wantsSave() const { return saveWanted; }
  void saved() { saveWanted = false; }
  // Whether the run ends, for any of the reasons.
  bool finished(const Progress &progress) const;
  // How much of the run is done, from 0 to 1, by whichever limit it is nearest to.
  double fractionDone(const Progress &progress) const;

private:
  using Clock = std::chrono::steady_clock;
  const TrainOptions &options;
  const StepBatches &batches;
  Ranks &ranks;
  Clock::time_point started = Clock::now();
  bool stopping = false, timeIsUp = false, saveWanted = false;
};

} // namespace xfc
