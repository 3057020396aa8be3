// Trains a model on parallel text, into a folder.
#pragma once

#include "train/run/TrainOptions.h"
#include <string>

namespace xfc {

// Trains according to the options, together with the other ranks if MPI's launcher has started several. `configuration`
// holds the flags of the command line in JSON, and is written to config.json. Throws Error for options, files and
// states that do not fit together, and if a step fails. Of several ranks, one that fails ends the process, and the
// others with it.
void train(const TrainOptions &options, const std::string &configuration);

} // namespace xfc
