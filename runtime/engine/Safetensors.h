// Weights of an engine: loaded from files, given as tensors, and initialized.
#pragma once

#include "engine/Engine.h"
#include "support/MappedFile.h"
#include "tensors/Safetensors.h"
#include <string>
#include <vector>

namespace xfc {

// Loads weights into the engine's parameters and returns the file's metadata. Throws Error naming the tensor that is
// missing, unknown, of another shape, not finite, or not as its checksum says; tied names must be equal if several are
// given. Throws Error for weights of another model (see Identity.h) unless `anyModel`. A file laid out like the
// parameter block, as `weights` gives it, becomes the parameters without a copy: it is memory-mapped, and never written
// to.
Metadata loadWeights(Engine &engine, const std::string &file, bool anyModel = false);
Metadata loadWeights(Engine &engine, MappedFile contents, const std::string &file, bool anyModel = false);
void loadWeights(Engine &engine, const TensorViews &tensors, const std::string &file);
// Loads the parameters that a file has, by name, whatever model it is of; the others keep their values. Throws Error if
// the file is damaged, holds NaN or infinity, or fits no parameter.
struct FittingWeights {
  std::vector<std::string> loaded, left; // parameters: those loaded, and those that the file lacks
  std::vector<std::string> unfit;        // tensors of another shape or type, as "NAME [2, 3] (here [4, 3])"
  std::vector<std::string> unused;       // tensors that no parameter takes
  Metadata metadata;
};
FittingWeights loadFitting(Engine &engine, const std::string &file);
// Sets the parameters to the mean of the weights in these files, summed in the order of the files in f64. Returns the
// metadata of each file. Throws Error as loadWeights does. Only a part of each file is in memory at a time.
std::vector<Metadata> loadMean(Engine &engine, const std::vector<std::string> &files, bool anyModel = false);
// The parameters in their order, a tied group under its first name, always F32 (F64 for an f64 executable).
TensorViews weights(Engine &engine);
// Fills the parameters as the model's init says; the same seed gives the same values on every machine.
void initializeParameters(Engine &engine, uint64_t seed);

} // namespace xfc
