// Weights and vocabulary inside the executable itself: appended to it, found by a trailer at its end.
#pragma once

#include "support/MappedFile.h"
#include <optional>
#include <string>

namespace xfc {

struct PackedModel {
  MappedFile weights;           // a safetensors file
  std::string vocabulary;       // a vocabulary file; empty: lines are ids
  std::string targetVocabulary; // empty: `vocabulary` is for both sides
};

// Sizes in bytes of the consecutive parts of a packed executable, without the trailer.
struct PackedParts {
  uint64_t executable = 0; // including the padding after it
  uint64_t weights = 0, vocabulary = 0, targetVocabulary = 0;
};
// The parts of a file of `size` bytes, by its last bytes, `end`. If it carries no model, the whole file is the
// executable. Throws Error if the trailer is damaged.
PackedParts packedParts(std::string_view end, uint64_t size);

inline constexpr const char *runningExecutable = "/proc/self/exe";
bool beginsAsExecutable(const std::string &file); // whether it begins as one, and can be read
// The model that an executable carries; nothing if it is not packed. Throws Error if the trailer is damaged.
std::optional<PackedModel> packedModel(const std::string &executable = runningExecutable);
// Writes the running executable, without any model that it carries, and the bytes of these files to `file`, which is
// renamed into place when it is complete.
void writePacked(std::string_view weights, std::string_view vocabulary, std::string_view targetVocabulary,
                 const std::string &file);

} // namespace xfc
