// `xfc export`.
#pragma once

#include "support/Options.h"

namespace xfc {

void addExport(Command app);

} // namespace xfc
