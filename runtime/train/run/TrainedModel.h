// A model together with what trains it: its vocabularies, its steps and the states of its optimizer.
#pragma once

#include "decode/ModelOptions.h"
#include "ranks/Ranks.h"
#include "train/States.h"
#include "train/Update.h"
#include "train/run/TrainOptions.h"

namespace xfc {

struct TrainedModel {
  // Opens the executable's model, whose parameters are zero until weights are loaded or drawn, on the device that this
  // rank is to use. Throws Error if the executable is damaged or has no such model, device or group of parameters, or
  // if the vocabularies do not fit. Concerns one rank alone; several ranks then call update.join().
  TrainedModel(const TrainOptions &options, Ranks &ranks);
  TrainedModel(const TrainedModel &) = delete;

  Engine &engine() const { return *translation.engine; }
  const Module &module() const { return engine().module(); }
  VocabularyPair vocabularies() const { return {*translation.source, *translation.target}; }

  TranslationModel translation;
  Update update;
  States states;

private:
  Update *grouped(const TrainOptions &options);
};

} // namespace xfc
