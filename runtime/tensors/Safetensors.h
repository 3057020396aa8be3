// Tensors as safetensors files; written whole or not at all.
#pragma once

#include "device/ThreadPool.h"
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

// What files of weights carry of the model they belong to: its name, and its canonical description with the SHA-256 of
// that. engine/Identity.h says what is done with it.
Metadata identityOf(const std::string &model, const std::string &hash, const std::string &description);
constexpr const char *modelHashKey = "model_hash";

// Throws Error: missing, truncated, not safetensors, offsets that do not cover the data exactly, and where the file has
// checksums, data or header that they do not fit.
Tensors readSafetensors(const std::string &file, Metadata *metadata = nullptr);
// The same of a file's contents but for the tensors' own checksums; `file` is for messages.
TensorViews parseSafetensors(std::string_view contents, const std::string &file, Metadata *metadata = nullptr);
// Throws Error naming the first tensor that is not what its checksum in the metadata says; those without one pass.
void verifyChecksums(ThreadPool *pool, const TensorViews &tensors, const Metadata &metadata, const std::string &file);
// The first tensor that holds NaN or infinity, or null.
const TensorView *notFinite(ThreadPool *pool, const TensorViews &tensors);
// Throws Error naming the first of these that is not what its checksum says, or holds NaN or infinity: both in one
// walk. Tensors that lie in `mapped`, if it is given, were not written to, and leave no more than a part of themselves
// in memory.
void verifyWeights(ThreadPool *pool, const std::vector<const TensorView *> &tensors, const Metadata &metadata,
                   const std::string &file, const MappedFile *mapped = nullptr);
// "[3, 4]".
std::string textOf(const std::vector<int64_t> &shape);
// Tensors in the order that is given, the first at a multiple of 64 bytes, straight from where they lie, with checksums
// of each and of the header. Through a temporary name, fsync and rename; the file that was there before stays as
// `previous` where that is not empty. Throws Error and leaves what was there (full disk, no permission).
void writeSafetensors(const std::string &file, const TensorViews &tensors, const Metadata &metadata = {},
                      ThreadPool *pool = nullptr, const std::string &previous = "");

} // namespace xfc
