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

// What the running executable carries; nothing if it is not packed. Throws Error when the trailer is damaged.
std::optional<PackedModel> packedModel();
// Writes the running executable (without what it may carry already) and these files' bytes to `file`, whole or not at
// all.
void writePacked(std::string_view weights, std::string_view vocabulary, std::string_view targetVocabulary,
                 const std::string &file);

} // namespace xfc
