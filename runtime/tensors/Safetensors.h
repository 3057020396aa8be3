// Reads tensors from safetensors files, and writes such files atomically.
#pragma once

#include "device/ThreadPool.h"
#include "support/MappedFile.h"
#include <functional>
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

// A tensor whose bytes belong to something else: a mapped file, the engine, or a Tensors map.
struct TensorView {
  std::string name, type;
  std::vector<int64_t> shape;
  std::string_view bytes;
};
using TensorViews = std::vector<TensorView>; // in the order of a file
TensorViews viewsOf(const Tensors &tensors);

using Metadata = std::map<std::string, std::string>; // a file's description of itself

// The facts that a weights file records about its model: the name, the canonical description and its SHA-256 hash.
// engine/Identity.h describes how these are used.
Metadata identityOf(const std::string &model, const std::string &hash, const std::string &description);
constexpr const char *modelHashKey = "model_hash";

// Throws Error if the file is missing, truncated or not a safetensors file, if its offsets do not cover the data
// exactly, or if the data or the header does not match the file's checksums.
Tensors readSafetensors(const std::string &file, Metadata *metadata = nullptr);
// Parses a file's contents without verifying the tensors' checksums; `file` is for messages.
TensorViews parseSafetensors(std::string_view contents, const std::string &file, Metadata *metadata = nullptr);
// Throws an Error that names the first tensor that does not match its checksum in the metadata; tensors without one
// pass.
void verifyChecksums(ThreadPool *pool, const TensorViews &tensors, const Metadata &metadata, const std::string &file);
// The first tensor that holds NaN or infinity, or null.
const TensorView *notFinite(ThreadPool *pool, const TensorViews &tensors);
// Throws an Error that names the first of these tensors that does not match its checksum or holds NaN or infinity; one
// pass over the data checks both. Tensors that lie in `mapped`, if it is given, must not have been written to; only a
// part of them stays in memory.
void verifyWeights(ThreadPool *pool, const std::vector<const TensorView *> &tensors, const Metadata &metadata,
                   const std::string &file, const MappedFile *mapped = nullptr);
// "[3, 4]".
std::string textOf(const std::vector<int64_t> &shape);
// Writes the tensors in the given order, straight from where they lie, the first at a multiple of 64 bytes, with
// checksums of each and of the header. The file is written under a temporary name, synced and atomically renamed; the
// old file stays as `previous` unless that is empty. Throws Error and leaves the old file in place (full disk, no
// permission). Tensors whose bytes are not all in memory at once can be put in place by `bring`: it is called with the
// number of each tensor before that is read, for one tensor after the other, in as many passes as are said here.
constexpr int passesOfWriting = 2;
void writeSafetensors(const std::string &file, const TensorViews &tensors, const Metadata &metadata = {},
                      ThreadPool *pool = nullptr, const std::string &previous = "",
                      const std::function<void(size_t)> &bring = {});

} // namespace xfc
