// Which model weights belong to: what a file of weights says, and whether that is the model at hand.
#pragma once

#include "engine/Safetensors.h"

namespace xfc {

// What files of weights carry of the model: its name, hash and description.
Metadata identityOf(const Module &module);
// Throws Error naming both models, and the first place where they differ, if the metadata is of a model that computes
// something else from the same weights. Names, initial values, dropout, max_length and
// generation may differ. Metadata that names
// no model (another program's weights, or those of earlier versions) passes.
void checkModel(const Metadata &metadata, const Module &module, const std::string &file);
bool namesModel(const Metadata &metadata);

} // namespace xfc
