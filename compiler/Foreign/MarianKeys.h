// The keys of Marian's YAML files that import does not read because they have no effect on it: the harmless ones with
// any value, the neutral ones with some values.
#pragma once

#include "Yaml.h"

namespace xfc {

// Keys of a model's options that change nothing in a Transformer, or only where another option that is refused says so.
const std::set<std::string> &harmlessInMarianModel();
// Keys of the options of a training, which are in a file beside the model: what it read and wrote, how long, how fast
// and with which optimizer. A training here has settings of its own.
const std::set<std::string> &harmlessInMarianTraining();
const NeutralValues &neutralInMarianTraining();
// Keys of a decoder's settings of files, speed and memory, and of what is written beside the translation.
const std::set<std::string> &harmlessInMarianDecoder();
const NeutralValues &neutralInMarianDecoder();

} // namespace xfc
