// The search settings that apply unless an option overrides them.
#pragma once

#include "plan/Generation.h"
#include "plan/Plan.h"

namespace xfc {

// The settings in the model's description. Throws Error if the compiler cannot have written them.
Generation generationOf(const Module &module);
// Returns the settings of this executable's model.
Generation generationOfExecutable();

} // namespace xfc
