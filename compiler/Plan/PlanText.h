// Prints a serialized plan, such as that of an executable.
#pragma once

#include "plan/Plan.h"
#include <string>

namespace xfc {

// All of a plan but the description of the model, in the notation of the plan dialect: what `--emit scheduled` prints,
// without the values, which a serialized plan does not keep. Throws Error if the plan's programs are damaged.
std::string planText(const Module &plan);

} // namespace xfc
