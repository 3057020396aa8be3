// The verb `demo` of xfc.
#pragma once

#include "support/Options.h"

namespace xfc {

void addDemo(Command app);

} // namespace xfc
