// `xfc compile` and `xfc phases`.
#pragma once

#include "support/Options.h"

namespace xfc {

void addCompile(Command app);
void addPhases(Command app);

} // namespace xfc
