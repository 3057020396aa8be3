// Weights and checkpoints as safetensors files; written whole or not at all.
#pragma once

#include "engine/Engine.h"
#include "support/Files.h"
#include <map>
#include <string>
#include <vector>

namespace xfc {

struct StoredTensor {
  std::string type; // F32, F64, F16, BF16, I32, I64, U8
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};
using Tensors = std::map<std::string, StoredTensor>;

// A tensor in the memory of another: of a mapped file, of the engine, of Tensors.
struct TensorView {
  std::string name, type;
  std::vector<int64_t> shape;
  std::string_view bytes;
};
using TensorViews = std::vector<TensorView>; // in the order of a file
TensorViews viewsOf(const Tensors &tensors);

using Metadata = std::map<std::string, std::string>; // what a file says about itself

// Throws Error: missing, truncated, not safetensors, offsets that do not cover the data exactly, and where the file has
// checksums, data or header that they do not fit.
Tensors readSafetensors(const std::string &file, Metadata *metadata = nullptr);
// The same of a file's contents but for the tensors' own checksums; `file` is for messages.
TensorViews parseSafetensors(std::string_view contents, const std::string &file, Metadata *metadata = nullptr);
// Throws Error naming the first tensor that is not what its checksum in the metadata says; those without one pass.
void verifyChecksums(ThreadPool *pool, const TensorViews &tensors, const Metadata &metadata, const std::string &file);
// The first tensor that holds NaN or infinity, or null.
const TensorView *notFinite(ThreadPool *pool, const TensorViews &tensors);
// Tensors in the order that is given, the first at a multiple of 64 bytes, straight from where they lie, with checksums
// of each and of the header. Through a temporary name, fsync and rename; the file that was there before stays as
// `previous` where that is not empty. Throws Error and leaves what was there (full disk, no permission).
void writeSafetensors(const std::string &file, const TensorViews &tensors, const Metadata &metadata = {},
                      ThreadPool *pool = nullptr, const std::string &previous = "");

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
