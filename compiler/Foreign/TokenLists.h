// Lists of tokens by id, beside which the SentencePiece models that cut text into them may lie, into vocabularies.
#pragma once

#include "tokenizers/Tokenizer.h"
#include <string>
#include <vector>

namespace xfc {

struct TokenList {
  std::string file; // for messages
  std::vector<std::string> tokens;
  std::string pieces; // the file of a SentencePiece model; empty: text is tokens separated by blanks
  SpecialTokens ids;
  std::vector<int32_t> prefix; // before a line: a language, say
};

// -1 where there is none.
int32_t findToken(const std::vector<std::string> &tokens, const std::string &token);
// A vocabulary's contents. Throws Error where they are none, with the file's name.
std::string vocabularyOf(const TokenList &list);

// The file of these names of a folder that is there; empty where none is.
std::string firstOf(const std::string &folder, const std::vector<std::string> &names);

} // namespace xfc
