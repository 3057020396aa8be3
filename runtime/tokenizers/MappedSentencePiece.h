// Stores a SentencePiece model together with a map that gives its pieces other ids, in one file of xfc's own format:
// for Marian, M2M100, and all models whose ids are shifted against those of their SentencePiece model.
//
// The file is a magic line, a line of JSON, and the bytes of the SentencePiece model. The JSON has the members of
// MappedSentencePiece under their names, except `model`; `pad` to `eos` are present only if there are such tokens,
// `punctuation` only if it is not empty, and `tags` and `strip` only if they are not the default.
#pragma once

#include "tokenizers/Tokenizer.h"

namespace xfc {

inline constexpr std::string_view mappedSentencePieceMagic = "xfc vocabulary 1\n";

struct MappedSentencePiece {
  std::string model;               // the serialized SentencePiece model
  std::vector<std::string> tokens; // by id; "" for ids without a token
  SpecialTokens ids;               // `unk` also stands for every piece that is not a token
  std::vector<int32_t> special;    // matched as a whole anywhere in a line, and skipped in decoding
  // Whether `>>` at the beginning of a line, up to the next `<<`, is one token: Marian's way to name the target
  // language.
  bool tags = false;
  Frame frame;
  // Whether decoding removes white space at both ends of a line, as transformers does, or leaves it, as SentencePiece
  // does, by which Marian and the callers of CTranslate2 decode.
  bool strip = true;
  std::string punctuation; // the language by whose rules lines are normalized first (Punctuation.h); empty: none

  std::string written() const;
};

// Copies a vocabulary, with another `punctuation`. Throws an Error if the contents are of another kind.
std::string withPunctuation(std::string_view contents, const std::string &language);
// The `punctuation` of a vocabulary; empty for those of other kinds.
std::string punctuationOf(std::string_view contents);
// Whether the contents are of this kind, and decoding strips lines.
bool stripsLines(std::string_view contents);

} // namespace xfc
