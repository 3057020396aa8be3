// The verb `models` of xfc.
#pragma once

#include "support/Options.h"

namespace xfc {

void addModels(Command app);

} // namespace xfc
