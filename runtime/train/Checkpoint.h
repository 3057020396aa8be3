// What a training run leaves in its folder, and how it goes on from there.
#pragma once

#include "engine/Engine.h"
#include "text/Batches.h"
#include <limits>
#include <string>

namespace xfc {

// Where a run stands. With the parameters and moments it is all that the next step depends on: random numbers are
// keyed by seed, step and sentence, and carry no state.
struct Progress {
  int64_t step = 0;
  Batches::Position position;
  uint64_t seed = 0, data = 0; // the corpus' hash
  int64_t batchTokens = 0, accumulate = 1;
  double seconds = 0; // of training, over all parts of the run
  double bestLoss = std::numeric_limits<double>::infinity();
  int64_t bestStep = 0;
  int64_t validatedStep = -1;     // the last one
  int64_t withoutImprovement = 0; // validations since the best
};

class RunFolder {
public:
  explicit RunFolder(std::string path) : path(std::move(path)) {}
  std::string file(const std::string &name) const { return path + "/" + name; }
  // Weights kept of a step, for --keep and --average.
  std::string keptFile(int64_t step) const;
  std::vector<int64_t> keptSteps() const; // ascending
  bool isFolder() const;
  bool empty() const;         // or not there at all
  void removePartial() const; // what a run that was killed was writing
  bool hasState() const;

  // One file holds parameters, moments and progress, so that no crash can mix two of them.
  void saveState(Engine &engine, const Progress &progress) const;
  // Throws Error: the state belongs to another model, or is damaged.
  Progress loadState(Engine &engine) const;
  void saveWeights(Engine &engine, const std::string &name, int64_t step) const;
  // Keeps the `count` newest of the kept weights, and none newer than `step`.
  void prune(int64_t count, int64_t step) const;
  // Loads the mean of the `count` newest kept weights into the engine.
  void loadAverage(Engine &engine, int64_t count) const;

private:
  std::string path;
};

} // namespace xfc
