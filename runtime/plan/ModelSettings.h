// What a model.json says of how its model is searched with and trained, unless a command line says otherwise.
#pragma once

#include "plan/Generation.h"
#include "plan/Training.h"
#include <cstdint>

namespace xfc {

struct ModelSettings {
  int64_t width = 1; // d_model, for the Noam schedule
  Generation generation;
  TrainingSettings training;

  bool operator==(const ModelSettings &) const = default;
};

} // namespace xfc
