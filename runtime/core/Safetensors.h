// Weights and checkpoints as safetensors files; written whole or not at all.
#pragma once

#include "Engine.h"
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

// Throws Error: missing, truncated, not safetensors, offsets that do not cover the data exactly.
Tensors readSafetensors(const std::string &file, std::map<std::string, std::string> *metadata = nullptr);
// The same of a file's contents; `file` is for messages.
Tensors parseSafetensors(std::string_view contents, const std::string &file, std::map<std::string, std::string> *metadata = nullptr);
// Through a temporary name, fsync and rename. Throws Error and leaves what was there (full disk, no permission).
void writeSafetensors(const std::string &file, const Tensors &tensors, const std::map<std::string, std::string> &metadata = {});

// Loads a file of weights into the engine's parameters. Throws Error naming the tensor: missing, of another
// shape, foreign, NaN or infinite; tied names must be equal if given.
void loadWeights(Engine &engine, const std::string &file);
void loadWeights(Engine &engine, const Tensors &tensors, const std::string &file);
// The parameters, a tied group under its first name, always F32 (F64 for an f64 executable).
Tensors weights(Engine &engine);
// Fills the parameters as the model's init says; the same seed gives the same values on every machine.
void initializeParameters(Engine &engine, uint64_t seed);

} // namespace xfc
