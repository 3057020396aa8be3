// `xfc inspect`: what a model costs and looks like, without compiling it.
#pragma once

#include "support/Options.h"

namespace xfc {

void addInspect(Command app);

} // namespace xfc
