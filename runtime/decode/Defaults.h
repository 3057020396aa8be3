// The settings of searches and of training that apply unless an option overrides them.
#pragma once

#include "plan/Plan.h"

namespace xfc {

// The settings of the model.json in `folder` (empty: none), a folder that `xfc import` made, which may have been edited
// since, or those of the executable if the folder (of train) has none. Throws an Error that names the file and the key
// if they are invalid, or if the file has another `source_eos` than the executable.
Generation generationOf(const Module &module, const std::string &folder);
// The settings of this executable's model. Throws Error if its plan is damaged.
ModelSettings settingsOfExecutable();

} // namespace xfc
