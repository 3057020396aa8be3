// Weights and vocabulary inside the executable itself: appended to it, found by a trailer at its end.
#pragma once

#include "support/Files.h"
#include <optional>
#include <string>

namespace xfc {

struct PackedModel {
  MappedFile weights;           // a safetensors file
  std::string vocabulary;       // a SentencePiece model; empty: the model has ids only
  std::string targetVocabulary; // empty: `vocabulary` is both
};

// Sizes in bytes of what lies in a packed executable one after the other, before the trailer.
struct PackedParts {
  uint64_t executable = 0; // with the padding after it
  uint64_t weights = 0, vocabulary = 0, targetVocabulary = 0;
};
// Those of a file of `size` bytes by its last bytes, `end`; the whole file is the executable where it carries nothing.
// Throws Error when the trailer is damaged.
PackedParts packedParts(std::string_view end, uint64_t size);

inline constexpr const char *runningExecutable = "/proc/self/exe";
// What an executable carries; nothing if it is not packed. Throws Error when the trailer is damaged.
std::optional<PackedModel> packedModel(const std::string &executable = runningExecutable);
// Writes the running executable (without what it may carry already) and these files' bytes to `file`, whole or not at
// all.
void writePacked(std::string_view weights, std::string_view vocabulary, std::string_view targetVocabulary,
                 const std::string &file);

} // namespace xfc
