// Weights of an engine: loaded from files, and written to them.
#pragma once

#include "engine/Engine.h"
#include "tensors/Safetensors.h"
#include <string>
#include <vector>

namespace xfc {

// Loads weights into the engine's parameters and returns what the file says about itself. Throws Error naming the
// tensor: missing, of another shape, foreign, NaN or infinite, not as its checksum says; tied names must be equal if
// given. Throws Error for weights of another model (see Identity.h) unless `anyModel`. A file that lies as the
// parameters do, which is what `weights` gives, becomes the parameters without a copy: its pages are read where they
// are, and stay as the file has them.
Metadata loadWeights(Engine &engine, const std::string &file, bool anyModel = false);
Metadata loadWeights(Engine &engine, MappedFile contents, const std::string &file, bool anyModel = false);
void loadWeights(Engine &engine, const TensorViews &tensors, const std::string &file);
// Loads what a file has of the engine's parameters, by name, whatever model it is of; the others stay as they are.
// Throws Error: damaged, NaN or infinite, or nothing of it fits.
struct FittingWeights {
  std::vector<std::string> loaded, left; // parameters
  std::vector<std::string> unfit;        // parameters of another shape or type there, as "NAME [2, 3] (here [4, 3])"
  std::vector<std::string> unused;       // tensors of the file
  Metadata metadata;
};
FittingWeights loadFitting(Engine &engine, const std::string &file);
// The mean of the weights in these files, summed in their order in f64, becomes the parameters. Returns what each file
// says about itself. Throws Error as loadWeights does. No more of the files is in memory at a time than parts of each.
std::vector<Metadata> loadMean(Engine &engine, const std::vector<std::string> &files, bool anyModel = false);
// The parameters in their order, a tied group under its first name, always F32 (F64 for an f64 executable).
TensorViews weights(Engine &engine);
// Fills the parameters as the model's init says; the same seed gives the same values on every machine.
void initializeParameters(Engine &engine, uint64_t seed);

} // namespace xfc
