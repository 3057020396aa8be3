// What a training run leaves in its folder, and how it goes on from there.
#pragma once

#include "decode/ModelOptions.h"
#include "engine/Engine.h"
#include "engine/Safetensors.h"
#include "plan/Optimizers.h"
#include "ranks/Ranks.h"
#include "text/Batches.h"
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace xfc {

// A validation whose weights are kept, for --keep-best.
struct KeptBest {
  int64_t step = 0;
  double value = 0; // as Progress::best
};

// Where a run stands. With the parameters and the optimizer's states it is all that the next step depends on: random
// numbers are keyed by seed, step and sentence, and carry no state.
struct Progress {
  int64_t step = 0;
  Batches::Position position;
  uint64_t seed = 0, data = 0; // the corpus' hash
  int64_t batchTokens = 0, accumulate = 1;
  double seconds = 0;          // of training, over all parts of the run
  std::string metric = "loss"; // by which validations are compared: loss, bleu, chrf or ter
  double best =
      std::numeric_limits<double>::infinity(); // the smallest loss per label, TER, or other score with its sign changed
  int64_t bestStep = 0;
  std::vector<KeptBest> keptBest; // the best first
  int64_t validatedStep = -1;     // the last one
  int64_t withoutImprovement = 0; // validations since the best
  int64_t averagedStep = -1;      // that of the last average.safetensors
  int64_t records = -1;           // of the log; -1: not known, as in states of earlier versions
  std::string groups;             // GroupRules::text()
  double rateScale = 1;           // of the schedule's rate: halved each time that the loss was no number
  std::string mixture;            // of corpora, as its flag says it, and their sizes
};

std::string textOf(const Progress &progress);
// The progress that a state's metadata holds. Throws Error for what no run writes.
Progress progressOf(const std::string &text);

// What files of weights carry of a model and its vocabularies.
Metadata identityOf(const TranslationModel &model);
// Writes the weights after a training step, with what they are of.
void saveWeights(Engine &engine, const std::string &file, Metadata identity, int64_t step);

inline constexpr const char *eventsFile = "events.out.tfevents.xfc"; // for TensorBoard, which looks for such names

class RunFolder {
public:
  explicit RunFolder(std::string path) : path(std::move(path)) {}
  std::string file(const std::string &name) const { return path + "/" + name; }
  // Weights kept of a step, for --keep and --average.
  std::string keptFile(int64_t step) const;
  std::vector<int64_t> keptSteps() const; // ascending
  // The same of a validation, for --keep-best.
  std::string bestFile(int64_t step) const;
  bool isFolder() const;
  bool empty() const; // or not there at all; a lock does not count
  // Keeps other processes out until the object ends. Throws Error naming the one that is in there.
  void lock();
  bool locked() const { return held.has_value(); }
  void removePartial() const; // what a run that was killed was writing
  bool hasState() const;
  std::string anyWeights() const; // the name of a file of weights, or ""

  // What the files say about the model and its vocabularies; to be set before anything is saved or loaded.
  Metadata identity;
  // Whose states are saved and loaded.
  const Optimizer *optimizer = &optimizers().front();
  // One file holds parameters, the optimizer's states and progress, so that no crash can mix two of them. The one
  // before it is kept.
  void saveState(Engine &engine, const Progress &progress) const;
  // Throws Error: the state belongs to another model or vocabulary, or is damaged and there is none before it. `said`
  // gets a line where it is that one.
  Progress loadState(Engine &engine, std::string &said) const;
  // Puts the state before the last one in its place: the last was found to lead nowhere. Returns its step, or -1 where
  // there is none.
  int64_t revertState() const;
  void saveWeights(Engine &engine, const std::string &name, int64_t step) const;
  // Keeps the `count` newest of the kept weights, and none newer than `step`.
  void prune(int64_t count, int64_t step) const;
  // Leaves of the weights of validations these alone.
  void pruneBest(std::span<const KeptBest> kept) const;
  // Loads the mean of the `count` newest kept weights into the engine.
  void loadAverage(Engine &engine, int64_t count) const;

private:
  std::vector<int64_t> stepsOf(std::string (RunFolder::*fileOf)(int64_t) const) const; // ascending
  Progress loadState(Engine &engine, const std::string &file) const;
  std::string path;
  std::optional<FileLock> held;
};

// The first rank's parameters, and its optimizer's states too, for all ranks.
void shareWeights(Engine &engine, Ranks &ranks);
void shareState(Engine &engine, const Optimizer &optimizer, Ranks &ranks);

// What an optimizer that keeps a moving average of the parameters begins with: the parameters. Nothing of another one.
void beginAverage(Engine &engine, const Optimizer &optimizer);

// Puts the moving average in the parameters' place, and them in that of the average. Nothing where the optimizer keeps
// none.
void exchangeAverage(Engine &engine, const Optimizer &optimizer);
// What `use` does with the moving average in the parameters' place; both are then as they were, to the bit.
template <typename Use> void withAverage(Engine &engine, const Optimizer &optimizer, Use use) {
  exchangeAverage(engine, optimizer);
  try {
    use();
  } catch (...) {
    exchangeAverage(engine, optimizer);
    throw;
  }
  exchangeAverage(engine, optimizer);
}

// Throws Error naming the first parameter or optimizer state that is NaN or infinite; what cannot be trained on is not
// saved.
void checkFinite(Engine &engine, const Optimizer &optimizer);

} // namespace xfc
