// Determines which kind of tokenizer a file holds.
#include "tokenizers/Tokenizer.h"
#include "support/Error.h"
#include "tokenizers/Kinds.h"
#include "tokenizers/MappedSentencePiece.h"
#include "tokenizers/ReversedTokenizer.h"
#include <algorithm>

namespace xfc {

static std::unique_ptr<Tokenizer> anyTokenizer(std::string_view contents) {
  if (isReversed(contents))
    return reversedTokenizer(contents);
  if (contents.starts_with(mappedSentencePieceMagic))
    return mappedSentencePiece(contents);
  // In a SentencePiece model every piece's score is preceded by a tag byte that does not occur in text.
  const bool text = std::none_of(contents.begin(), contents.end(), [](unsigned char byte) {
    return (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F;
  });
  const size_t begin = contents.find_first_not_of(" \t\r\n");
  if (!text || begin == std::string_view::npos)
    return sentencePieceTokenizer(contents);
  return contents[begin] == '{' ? jsonTokenizer(contents) : wordList(contents);
}

std::unique_ptr<Tokenizer> makeTokenizer(std::string_view contents, const std::string &name) {
  try {
    return anyTokenizer(contents);
  } catch (const Error &error) {
    throw Error(name + ": " + error.what());
  }
}

} // namespace xfc
