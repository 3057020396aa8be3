// Reads `training` of model.json into the default settings of an executable's training.
#pragma once

#include "Json.h"
#include "plan/Training.h"

namespace xfc {

// Throws Error, as the readers of JsonValue do.
TrainingSettings readTraining(const JsonValue &json);

} // namespace xfc
