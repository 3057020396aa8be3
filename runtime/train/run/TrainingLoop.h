// The steps of a run, its validations and its saves, one after the other until the run ends.
#pragma once

#include "ranks/Ranks.h"
#include "support/Progress.h"
#include "train/Schedule.h"
#include "train/run/Agreement.h"
#include "train/run/HeldOut.h"
#include "train/run/Keeper.h"
#include "train/run/Records.h"
#include "train/run/RunState.h"
#include "train/run/StepBatches.h"
#include "train/run/StepFault.h"
#include "train/run/StepTrace.h"
#include "train/run/StopCriteria.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainedModel.h"
#include <cstdint>
#include <string>

namespace xfc {

// All ranks run the same steps and save together; only the first one writes files and messages.
class TrainingLoop {
public:
  // What a loop works with, and who else does; all of these must outlive it.
  struct Parts {
    TrainedModel &model;
    StepBatches &batches;
    const HeldOut &heldOut;
    Records &records;
    Keeper &keeper;
    RunState &state;
    const Agreement &agreement;
    ProgressBar &bar;
    Ranks &ranks;
  };
  TrainingLoop(const TrainOptions &options, const Parts &parts);

  // Prepares the folder and brings all ranks to the state of the first one. Throws as RunState::begin() does.
  void begin(const RunFacts &facts, const std::string &configuration);
  // Trains until the run ends, and says how. Throws CommonError if a step fails and --on-nan has no answer to it, or if
  // a record cannot be written.
  void run();

private:
  bool step();
  void record();
  void validate();
  void validateNow(bool average);
  void save(bool isPlanned);
  void saveNow();
  void writeAverage();
  void end();
  void sayEnd() const;
  void fallBack(const StepFault &fault);
  [[noreturn]] void stopNotFinite(const StepFault &fault, const std::string &also = "");
  void decide() { stops.decide(progress, !parts.records.unwritten().empty()); }
  double rate() const { return progress.rateScale * schedule.at(progress.step); }
  double seconds() const { return stops.seconds(progress); }

  const TrainOptions &options;
  const Parts parts;
  const Schedule schedule;
  StepTrace trace;
  StopCriteria stops;
  Progress progress;
};

} // namespace xfc
