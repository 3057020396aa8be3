// Where a run stands in its folder: begun there, resumed from there, or gone back to.
#pragma once

#include "ranks/Ranks.h"
#include "support/Progress.h"
#include "train/Checkpoint.h"
#include "train/run/Agreement.h"
#include "train/run/Keeper.h"
#include "train/run/Records.h"
#include "train/run/StepBatches.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainedModel.h"
#include <string>

namespace xfc {

class RunState {
public:
  // All of these must outlive this.
  RunState(const TrainOptions &options, RunFolder &folder, TrainedModel &model, StepBatches &batches, Records &records,
           Keeper &keeper, ProgressBar &bar)
      : options(options), folder(folder), model(model), batches(batches), records(records), keeper(keeper), bar(bar) {}

  // Prepares the folder before the first step of this part of the run: initial weights and a new log, or the state and
  // the log that are there if the run is resumed; writes `configuration` and the vocabularies. Returns the progress,
  // whose facts are `facts`. Throws Error if the folder cannot be used, or if its run was begun with other facts.
  // Called by the first rank alone, as is load(). All ranks then call share().
  Progress begin(const RunFacts &facts, const std::string &configuration);
  // Goes back to the state on disk.
  Progress load();
  // Brings all ranks to the first rank's state and progress, and the batches there.
  void share(Progress &progress, const Agreement &agreement, Ranks &ranks);

private:
  void initialize();
  Progress resume(const RunFacts &facts);
  void requireSame(const Progress &progress, const RunFacts &facts) const;
  void openLog(const Progress &progress, bool hadState);

  const TrainOptions &options;
  RunFolder &folder;
  TrainedModel &model;
  StepBatches &batches;
  Records &records;
  Keeper &keeper;
  ProgressBar &bar;
};

} // namespace xfc
