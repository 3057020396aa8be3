// Saves a training run's state and weights in its folder, and resumes from there.
#pragma once

#include "corpora/Batches.h"
#include "decode/ModelOptions.h"
#include "engine/Engine.h"
#include "engine/Safetensors.h"
#include "plan/Optimizers.h"
#include "ranks/Ranks.h"
#include "support/FileLock.h"
#include "support/MappedFile.h"
#include "train/States.h"
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace xfc {

// A validation whose weights are kept, for --keep-best.
struct KeptBest {
  int64_t step = 0;
  double value = 0; // signed as Progress::best
};

// What a run was begun with, which a resumed run must repeat.
struct RunFacts {
  uint64_t seed = 0, data = 0; // the corpus' hash
  int64_t batchTokens = 0, accumulate = 1;
  std::string metric = "loss"; // by which validations are compared: loss, bleu, chrf or ter
  std::string groups;          // GroupRules::text()
  std::string mixture;         // the flags that mix the corpora, and the corpora's sizes
  std::string sampling;        // the flags by which text is segmented at random
  uint64_t validation = 0;     // a hash of the held-out text; 0: none, or a state of an earlier version
};

// The progress of a run. Together with the parameters and the optimizer's states it determines the next step
// completely: random numbers are keyed by seed, step and sentence, and carry no state.
struct Progress {
  int64_t step = 0;
  Batches::Position position;
  RunFacts facts;
  double seconds = 0; // of training, over all parts of a resumed run
  double best =
      std::numeric_limits<double>::infinity(); // the smallest loss per label or TER, or minus the largest score
  int64_t bestStep = 0;
  std::vector<KeptBest> keptBest; // best first
  int64_t validatedStep = -1;     // of the last validation
  int64_t withoutImprovement = 0; // validations since the best
  int64_t averagedStep = -1;      // of the last average.safetensors
  int64_t records = -1;           // in the log; -1: unknown, as in states of earlier versions
  double rateScale = 1;           // factor of the schedule's rate: halved whenever the loss was not finite
};

std::string textOf(const Progress &progress);
// Parses the progress from a state's metadata. Throws Error for values that no run writes.
Progress progressOf(const std::string &text);

// The metadata by which weights files identify the model and its vocabularies.
Metadata identityOf(const TranslationModel &model);
// Writes the weights after a training step, with the identity of their model.
void saveWeights(Engine &engine, const std::string &file, Metadata identity, int64_t step);

inline constexpr const char *eventsFile = "events.out.tfevents.xfc"; // TensorBoard looks for such names

class RunFolder {
public:
  explicit RunFolder(std::string path) : path(std::move(path)) {}
  std::string file(const std::string &name) const { return path + "/" + name; }
  // The file of the weights kept after a step, for --keep and --average.
  std::string keptFile(int64_t step) const;
  std::vector<int64_t> keptSteps() const; // ascending
  // Returns the name of a validation's weights, for --keep-best.
  std::string bestFile(int64_t step) const;
  bool isFolder() const;
  bool empty() const; // or missing; a lock file does not count
  // Locks out other processes for the lifetime of this object. Throws an Error that names the process that holds the
  // lock.
  void lock();
  bool locked() const { return held.has_value(); }
  // Throws Error if a new run would mix its files with those that are here, or a resumed one finds weights without a
  // state to continue from.
  void checkFor(bool resume) const;
  // Whether the path is that of a file that runs keep here besides their log, so that no other output may have it.
  bool keeps(const std::string &path) const;
  void removePartial() const; // removes the unfinished files of a run that was killed
  bool hasState() const;
  std::string anyWeights() const; // the name of any weights file, or ""

  // The metadata that identifies the model and its vocabularies; to be set before anything is saved or loaded.
  Metadata identity;
  // The optimizer whose states are saved and loaded.
  const Optimizer *optimizer = &optimizers().front();
  // Saves parameters, the optimizer's states and progress in one file, so that a crash cannot mix two saves. The
  // previous state is kept. Called by all ranks, of which the first one writes.
  void saveState(States &states, const Progress &progress) const;
  // Loads the parameters, and keeps the file open for shareStates(). Throws Error if the state belongs to another model
  // or vocabulary, or if it is damaged and there is no previous one. If the previous state is loaded instead, `said`
  // receives a warning.
  Progress loadState(Engine &engine, std::string &said);
  // Gives all ranks the states in the file that the first one has loaded; does nothing if it has loaded none. Called by
  // all ranks.
  void shareStates(States &states);
  // Replaces the last state, which was found to lead to a failure, by the previous one. Returns the step of that one,
  // or -1 if there is none.
  int64_t revertState() const;
  void saveWeights(Engine &engine, const std::string &name, int64_t step) const;
  // Deletes kept weights, except for the `count` newest up to `step`.
  void prune(int64_t count, int64_t step) const;
  // Deletes the weights kept for validations, except for these.
  void pruneBest(std::span<const KeptBest> kept) const;
  // Loads the mean of the `count` newest kept weights into the engine.
  void loadAverage(Engine &engine, int64_t count) const;

private:
  std::vector<int64_t> stepsOf(std::string (RunFolder::*fileOf)(int64_t) const) const; // ascending
  Progress loadState(Engine &engine, const std::string &file);
  std::string path;
  std::optional<FileLock> held;
  // The state that was loaded last, until its tensors have been shared.
  std::optional<MappedFile> loaded;
  std::map<std::string, TensorView> loadedStates;
};

// Broadcasts the first rank's parameters to all ranks.
void shareWeights(Engine &engine, Ranks &ranks);

} // namespace xfc
