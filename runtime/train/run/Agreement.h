// Ends a run of several ranks unless all of them have the same executable, flags and data.
#pragma once

#include "decode/ModelOptions.h"
#include "ranks/Ranks.h"
#include "train/run/HeldOut.h"
#include "train/run/StepBatches.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainingData.h"
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace xfc {

// All ranks call these functions in the same order. If two of them differ, each throws the same CommonError, which
// names both and what they have. A single process agrees with itself.
class Agreement {
public:
  explicit Agreement(Ranks &ranks) : ranks(ranks) {}
  // Compares executables and flags: they decide which exchanges a rank takes part in, so this comes before any other.
  // `configuration` holds the flags in JSON.
  void onCall(const TrainOptions &options, const std::string &configuration) const;
  // Compares what was read and what computes on it, which would let ranks compute different results.
  void onData(const TranslationModel &model, const TrainingData &data, const HeldOut &heldOut) const;
  // Moves to the position, and compares how its pool is segmented: ranks whose C libraries differ may draw other
  // segmentations of the same text.
  void onDraws(StepBatches &batches, Batches::Position position) const;

private:
  void compare(const nlohmann::ordered_json &facts) const;
  Ranks &ranks;
};

} // namespace xfc
