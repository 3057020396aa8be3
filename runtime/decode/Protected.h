// Parts of a source line that its translations must have as they are, such as placeholders, addresses and tags: they
// become constraints of the search.
//
// A part is met by the tokens of its text as a line by itself, with or without the blank before it. Where the
// vocabulary has no token for a part of the text, or changes it, as SentencePiece's normalization does, these tokens
// say where the text belongs, and it is written in their place.
#pragma once

#include "decode/Constraints.h"
#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

struct ProtectedPart {
  std::string text;
  Constraint phrases;       // the tokens that stand for it; empty: nothing makes the search write it
  std::vector<bool> spaced; // of each phrase: whether a blank precedes it
  bool exact = true;        // whether these tokens are written as the text
  std::string problem;      // why there are no phrases
};

inline constexpr size_t mostProtectedParts = 64; // of a line; others may be missing in its translation

// The parts of a line that match `options.protect`, from left to right; of those that overlap, the first, and of those
// that begin together, the longest. `source` and `prefix` are the line and its forced beginning as the search takes
// them. Adds a constraint for each part that can be met beside the others.
std::vector<ProtectedPart> protectParts(const TranslationModel &model, std::string_view line,
                                        std::span<const int32_t> source, std::span<const int32_t> prefix,
                                        const SearchOptions &options, std::vector<Constraint> &constraints);

// Puts one unknown token in place of the tokens of each part that is not exact, in the order of the parts if they have
// the same, and its text into `written`, which has what is written for each unknown token, if anything is given for
// them.
void placeParts(const TranslationModel &model, std::span<const ProtectedPart> parts, size_t forced,
                std::vector<int32_t> &ids, std::vector<std::string> &written);
// Whether the first token of a part that is not exact is this one.
bool beginsInexact(std::span<const ProtectedPart> parts, int32_t id);
// The parts that a translation lacks: for each, an occurrence is needed that shares no character with another's.
std::vector<const ProtectedPart *> lackingParts(std::span<const ProtectedPart> parts, std::string_view translation);

} // namespace xfc
