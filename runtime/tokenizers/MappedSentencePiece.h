// A SentencePiece model together with a map that gives its pieces other ids, in one file of ours: models of Marian,
// M2M100, and all whose ids are shifted against those of their SentencePiece model.
//
// The file is a line of magic, a line of JSON, and the bytes of the SentencePiece model. The JSON has the members of
// MappedSentencePiece by their names, `model` left out; `pad` to `eos` only where there are such tokens.
#pragma once

#include "tokenizers/Tokenizer.h"

namespace xfc {

inline constexpr std::string_view mappedSentencePieceMagic = "xfc vocabulary 1\n";

struct MappedSentencePiece {
  std::string model;               // SentencePiece
  std::vector<std::string> tokens; // by id; "" for ids without a token
  SpecialTokens ids;               // `unk` is that of every piece which is no token
  std::vector<int32_t> special;    // without text when decoded, and taken whole wherever a line holds them
  // Whether `>>` at the beginning of a line, up to the next `<<`, is one token: Marian's for the target language.
  bool tags = false;
  Frame frame;

  std::string written() const;
};

} // namespace xfc
