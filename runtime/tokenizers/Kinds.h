// The kinds of tokenizers, each constructed from a file's contents. All throw an Error that says what is wrong with the
// contents, without the file's name.
#pragma once

#include "tokenizers/Tokenizer.h"

namespace xfc {

std::unique_ptr<Tokenizer> sentencePieceTokenizer(std::string_view contents);
std::unique_ptr<Tokenizer> mappedSentencePiece(std::string_view contents);
std::unique_ptr<Tokenizer> jsonTokenizer(std::string_view contents);
std::unique_ptr<Tokenizer> wordList(std::string_view contents);

} // namespace xfc
