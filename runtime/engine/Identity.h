// Checks which model weights belong to: what their file says, against the model of this executable.
#pragma once

#include "engine/Safetensors.h"

namespace xfc {

// Weights belong to another model.
struct OtherModel : Error {
  using Error::Error;
};

// Returns what files of weights record of the model: its name, hash and description.
Metadata identityOf(const Module &module);
// Throws OtherModel naming both models and the first difference, if the metadata is of a model that computes something
// else from the same weights. Names, initial values, dropout, max_length, generation and training may differ. Metadata
// that names no model (of other programs, or of earlier versions) passes. `library`: the file that the module is from,
// if it is not this executable.
void checkModel(const Metadata &metadata, const Module &module, const std::string &file,
                const std::string &library = "");
bool namesModel(const Metadata &metadata);

} // namespace xfc
