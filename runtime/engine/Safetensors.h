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

// Throws Error: missing, truncated, not safetensors, offsets that do not cover the data exactly.
Tensors readSafetensors(const std::string &file, std::map<std::string, std::string> *metadata = nullptr);
// The same of a file's contents; `file` is for messages.
TensorViews parseSafetensors(std::string_view contents, const std::string &file,
                             std::map<std::string, std::string> *metadata = nullptr);
// Tensors in the order that is given, the first at a multiple of 64 bytes. Through a temporary name, fsync and rename.
// Throws Error and leaves what was there (full disk, no permission).
void writeSafetensors(const std::string &file, const TensorViews &tensors,
                      const std::map<std::string, std::string> &metadata = {});

// Loads weights into the engine's parameters. Throws Error naming the tensor: missing, of another shape, foreign, NaN
// or infinite; tied names must be equal if given. A file that lies as the parameters do, which is what `weights` gives,
// becomes the parameters without a copy: its pages are read where they are, and stay as the file has them.
void loadWeights(Engine &engine, const std::string &file);
void loadWeights(Engine &engine, MappedFile contents, const std::string &file);
void loadWeights(Engine &engine, const TensorViews &tensors, const std::string &file);
// The parameters in their order, a tied group under its first name, always F32 (F64 for an f64 executable).
TensorViews weights(Engine &engine);
// Fills the parameters as the model's init says; the same seed gives the same values on every machine.
void initializeParameters(Engine &engine, uint64_t seed);

} // namespace xfc
