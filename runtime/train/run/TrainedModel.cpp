// A model together with what trains it: its vocabularies, its steps and the states of its optimizer.
#include "train/run/TrainedModel.h"
#include <algorithm>
#include <thread>

namespace xfc {

static std::unique_ptr<Engine> engineFor(const TrainOptions &options, const Ranks &ranks) {
  int threads = options.threads;
  if (threads == 0 && ranks.sharers() > 1)
    threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks.sharers());
  DeviceChoice device = options.device;
  device.ordinal = ranks.onHost(); // ranks on one machine use one GPU each
  std::unique_ptr<Engine> engine = makeEngine(threads, device);
  engine->module().requireTranslator();
  // Damage to a program would otherwise show only when it first runs, perhaps after hours.
  engine->module().programs.readAll();
  return engine;
}

TrainedModel::TrainedModel(const TrainOptions &options, Ranks &ranks)
    : translation{.engine = engineFor(options, ranks), .source = {}, .target = {}}, update(engine(), &ranks),
      states(engine(), *options.update.optimizer, ranks, grouped(options)) {
  LoadedVocabularies loaded = loadVocabularies(options.data.vocabulary, options.data.targetVocabulary, module());
  translation.source = std::move(loaded.source);
  translation.target = std::move(loaded.target);
}

// Makes the update ready for States, which ask how ranks share them.
Update *TrainedModel::grouped(const TrainOptions &options) {
  if (!options.groups.empty())
    update.trainInGroups(TrainedGroups(module(), options.groups), *options.update.optimizer);
  update.shareStates(*options.update.optimizer);
  return &update;
}

} // namespace xfc
