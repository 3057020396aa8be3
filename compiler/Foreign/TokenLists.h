// Turns lists of tokens by id, which may come with the SentencePiece models that split text into them, into
// vocabularies.
#pragma once

#include "tokenizers/Tokenizer.h"
#include <string>
#include <vector>

namespace xfc {

struct TokenList {
  std::string file; // for messages
  std::vector<std::string> tokens;
  std::string pieces; // the file of a SentencePiece model; empty: the text is tokens separated by spaces
  SpecialTokens ids;
  Frame frame;        // of every line: a language before it, eos after it; lists of words have none
  bool strip = false; // as in MappedSentencePiece
};

// The id of a token, or -1 if there is none.
int32_t findToken(const std::vector<std::string> &tokens, const std::string &token);
// The contents of a vocabulary file. Throws an Error that names the list's file if the list makes no valid vocabulary.
std::string vocabularyOf(const TokenList &list);

// The first of these files that exists in the folder; empty if none does.
std::string firstOf(const std::string &folder, const std::vector<std::string> &names);

} // namespace xfc
