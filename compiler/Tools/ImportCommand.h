// `xfc import`.
#pragma once

#include "support/Options.h"

namespace xfc {

void addImport(Command app);

} // namespace xfc
