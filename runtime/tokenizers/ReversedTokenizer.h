// Vocabularies of models that write, or read, lines from their end: right-to-left models. Such a vocabulary has the
// tokens of another one, and gives those of a line in the opposite order.
#pragma once

#include "tokenizers/Tokenizer.h"
#include <string>
#include <string_view>

namespace xfc {

// The file of a vocabulary begins so, and the other one follows.
inline constexpr std::string_view reversedMagic = "xfc vocabulary from right to left 1\n";

inline bool isReversed(std::string_view contents) { return contents.starts_with(reversedMagic); }
// The contents of a file for the opposite order: that of the other vocabulary, if this one is from right to left.
std::string reversedVocabulary(std::string_view contents);
// Throws Error as makeTokenizer() does.
std::unique_ptr<Tokenizer> reversedTokenizer(std::string_view contents);

} // namespace xfc
