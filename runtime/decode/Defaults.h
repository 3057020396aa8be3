// How translations are searched for where no option says otherwise.
#pragma once

#include "plan/Generation.h"
#include "plan/Plan.h"

namespace xfc {

// What the model's description says. Throws Error where the compiler would not have written that.
Generation generationOf(const Module &module);
// The same of the model of this executable.
Generation generationOfExecutable();

} // namespace xfc
