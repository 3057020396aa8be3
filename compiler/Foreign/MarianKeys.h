// What the keys of Marian's YAML files do that import does not read: nothing, or nothing by one of their values.
#pragma once

#include <map>
#include <set>
#include <string>

namespace xfc {

// The values by which a key has no effect.
using NeutralValues = std::map<std::string, std::set<std::string>>;

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
