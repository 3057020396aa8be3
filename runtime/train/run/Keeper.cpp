// What a run leaves in its folder: the state that it resumes from, and the weights that it keeps.
#include "train/run/Keeper.h"
#include "engine/Safetensors.h"
#include "support/Files.h"
#include "support/Format.h"
#include "trace/Trace.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace xfc {

void Keeper::share() {
  if (ranks.size() == 1)
    return;
  ranks.broadcast(&saved, sizeof(saved));
  ranks.broadcast(&changed, sizeof(changed));
}

void Keeper::saveState(const Progress &progress, double seconds) {
  const Span span(model.engine().trace(), "save", "save state");
  ranks.together([&] {
    try {
      model.states.checkFinite();
    } catch (const Error &error) {
      throw Error(format("step %lld: ", static_cast<long long>(progress.step)) + error.what() +
                  (saved >= 0 ? "; what was saved at step " + std::to_string(saved) + " is intact" : "") +
                  "; train with a smaller --lr or a longer --warmup, or Adam with a larger --adam-eps");
    }
  });
  Progress now = progress;
  if (ranks.isFirst()) {
    now.seconds = seconds;
    now.records = records.sync();
  }
  folder.saveState(model.states, now);
  if (ranks.isFirst() && options.keepBest > 0)
    folder.pruneBest(progress.keptBest);
  saved = progress.step;
  changed = false;
}

void Keeper::save(const Progress &progress, double seconds, bool isPlanned) {
  const Span span(model.engine().trace(), "save", "save");
  if (changed)
    saveState(progress, seconds);
  if (isPlanned)
    keepWeights(progress.step);
  saveWeights("last.safetensors", progress.step);
  if (model.states.hasAverage())
    saveAveraged("ema.safetensors", progress.step);
}

void Keeper::saveAveraged(const std::string &name, int64_t step) {
  model.states.withAverage([&] { saveWeights(name, step); });
}

void Keeper::saveWeights(const std::string &name, int64_t step) {
  if (ranks.isFirst())
    folder.saveWeights(model.engine(), name, step);
}

void Keeper::saveFirstState(const Progress &progress, double seconds) {
  if (ranks.largest(ranks.isFirst() && !folder.hasState()))
    saveState(progress, seconds);
}

// A state exists by then, because the first validation was the best so far. Weights that are displaced are deleted at
// the next save: until then, an interrupted run resumes from a state that refers to them.
void Keeper::keepBest(Progress &progress, double value) {
  const auto most = static_cast<size_t>(options.keepBest);
  std::vector<KeptBest> &kept = progress.keptBest;
  const auto place = std::ranges::upper_bound(kept, value, {}, &KeptBest::value); // ties: the first is better
  if (!std::isfinite(value) || static_cast<size_t>(place - kept.begin()) >= most)
    return;
  kept.insert(place, {progress.step, value});
  kept.resize(std::min(kept.size(), most));
  saveAveraged(folder.bestFile(progress.step), progress.step);
}

void Keeper::forgetMissing(Progress &progress) const {
  std::erase_if(progress.keptBest,
                [&](const KeptBest &kept) { return !exists(folder.file(folder.bestFile(kept.step))); });
  if (options.keepBest == 0)
    return;
  progress.keptBest.resize(std::min(progress.keptBest.size(), static_cast<size_t>(options.keepBest)));
  folder.pruneBest(progress.keptBest);
}

void Keeper::resumeFrom(Progress &progress) {
  saved = progress.step;
  changed = false;
  forgetMissing(progress);
  folder.prune(std::numeric_limits<int64_t>::max() / 2, progress.step);
  if (progress.step % options.every == 0)
    keepWeights(progress.step);
}

// Keeps the weights of the state on disk, for --keep and --average.
void Keeper::keepWeights(int64_t step) {
  if (!ranks.isFirst() || options.keptWeights() == 0 || step == 0)
    return;
  if (const std::string name = folder.keptFile(step); !exists(folder.file(name)))
    folder.saveWeights(model.engine(), name, step);
  folder.prune(options.keptWeights(), step);
}

bool Keeper::hasKept() const { return ranks.largest(ranks.isFirst() && !folder.keptSteps().empty()); }

void Keeper::takeAverage(int64_t step) {
  if (ranks.isFirst()) {
    folder.loadAverage(model.engine(), options.average);
    folder.saveWeights(model.engine(), "average.safetensors", step);
  }
  shareWeights(model.engine(), ranks);
}

void Keeper::takeLast() {
  if (ranks.isFirst())
    loadWeights(model.engine(), folder.file("last.safetensors"));
  shareWeights(model.engine(), ranks);
}

std::string Keeper::discardWhatLedTo(int64_t failed) {
  if (saved < 0 || saved != failed - 1 || saved == 0)
    return saved < 0 ? "" : "; what was saved at step " + std::to_string(saved) + " is intact";
  const std::string led = "; what was saved at step " + std::to_string(saved) + " led to this";
  const int64_t before = folder.revertState();
  return before < 0 ? led : led + " and is discarded; what was saved at step " + std::to_string(before) + " is intact";
}

bool Keeper::goBackFrom(int64_t failed) {
  return saved != failed - 1 || ranks.largest(ranks.isFirst() && folder.revertState() >= 0);
}

} // namespace xfc
