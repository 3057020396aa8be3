// The settings of searches and of training that apply unless an option overrides them.
#pragma once

#include "plan/Generation.h"
#include "plan/Plan.h"
#include "plan/Training.h"

namespace xfc {

// The settings in the model's description. Throws Error if the compiler cannot have written them.
Generation generationOf(const Module &module);
TrainingSettings trainingOf(const Module &module);
// Return the settings of this executable's model.
Generation generationOfExecutable();
TrainingSettings trainingOfExecutable();

} // namespace xfc
