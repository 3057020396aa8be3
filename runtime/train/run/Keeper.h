// What a run leaves in its folder: the state that it resumes from, and the weights that it keeps.
#pragma once

#include "ranks/Ranks.h"
#include "train/Checkpoint.h"
#include "train/run/Records.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainedModel.h"
#include <cstdint>
#include <string>

namespace xfc {

// Where it does not say otherwise, all ranks call these functions at the same time, and the first one writes.
class Keeper {
public:
  // All of these must outlive this.
  Keeper(const SaveOptions &options, RunFolder &folder, TrainedModel &model, Records &records, Ranks &ranks)
      : options(options), folder(folder), model(model), records(records), ranks(ranks) {}

  // The step of the state on disk; -1: there is none.
  int64_t savedStep() const { return saved; }
  // There is progress that the state on disk does not have.
  void noteChange() { changed = true; }
  // Tells all ranks which state is on disk, as the first one knows.
  void share();

  // Saves the state, after this progress and so many seconds of training. All ranks throw CommonError if it holds what
  // cannot be trained from.
  void saveState(const Progress &progress, double seconds);
  // Saves the state if anything has changed, and then the weights: a resumed run makes again anything that is
  // interrupted after it. The weights of this save are kept, for --keep and --average, if the run `isPlanned` to save
  // now: what is kept must not depend on how often a run is stopped or asked to save.
  void save(const Progress &progress, double seconds, bool isPlanned);
  // Saves the weights that are validated as `name`: their moving average if there is one, or else the weights.
  void saveAveraged(const std::string &name, int64_t step);
  // Saves the present weights. Concerns the first rank alone.
  void saveWeights(const std::string &name, int64_t step);
  // Saves the state if there is none at all: a folder never has weights without one.
  void saveFirstState(const Progress &progress, double seconds);
  // Keeps the weights if the validation is one of the best, for --keep-best, of which `progress` then tells.
  void keepBest(Progress &progress, double value);

  // After a state was loaded, on the first rank alone: forgets kept weights whose files are missing, and deletes those
  // of later steps, which will be made again.
  void forgetMissing(Progress &progress) const;
  // The same for a run that is resumed, whose state on disk this is. Keeps its weights if they were to be kept: a run
  // that was killed may not have got that far.
  void resumeFrom(Progress &progress);

  // Whether there are kept weights, for --average.
  bool hasKept() const;
  // Puts their mean into the model, and writes it to average.safetensors.
  void takeAverage(int64_t step);
  // Puts the last weights into the model again.
  void takeLast();

  // After a step has failed: replaces the state on disk by the one before if it leads to the failure at any rate. False
  // if that is needed and there is none.
  bool goBackFrom(int64_t failed);
  // The same for a run that ends there; returns what is to be said of the states on disk. Concerns the first rank
  // alone.
  std::string discardWhatLedTo(int64_t failed);

private:
  void keepWeights(int64_t step);

  const SaveOptions &options;
  RunFolder &folder;
  TrainedModel &model;
  Records &records;
  Ranks &ranks;
  int64_t saved = -1;
  bool changed = true;
};

} // namespace xfc
