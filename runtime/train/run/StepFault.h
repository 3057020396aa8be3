// Finds what made a step fail: where its first number that is not finite comes from.
#pragma once

#include "ranks/Ranks.h"
#include "train/Update.h"
#include "train/run/TrainedModel.h"
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace xfc {

// Why a step was not taken: a description, and fields for the log.
struct StepFault {
  std::string what;
  nlohmann::ordered_json record;
};

// Describes the failed step `step`, with this result, and where its first number that is not finite comes from: a
// kernel, found by running the step once more; or, on a device where that is not possible, or if each batch by itself
// is finite, the first parameter whose gradient is not. Overwrites the gradients. All ranks call this at the same time,
// and get the same.
StepFault faultOf(int64_t step, const UpdateResult &result, TrainedModel &model, Ranks &ranks);

} // namespace xfc
