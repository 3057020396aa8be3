// The steps of a tokenizer.json around its model: normalizers rewrite text, pre-tokenizers split it, and decoders turn
// tokens back into text.
#pragma once

#include "tokenizers/JsonFields.h"
#include <functional>
#include <string>
#include <vector>

namespace xfc {

using Normalizer = std::function<std::string(std::string)>;

// The steps of a "normalizer" member. Throws an Error that names a kind that is not supported.
std::vector<Normalizer> readNormalizers(const JsonFields &normalizer);

// A part of a line; `first`: it begins the line.
struct Word {
  std::string text;
  bool first;
};
using PreTokenizer = std::function<void(std::vector<Word> &)>;
std::vector<PreTokenizer> readPreTokenizers(const JsonFields &preTokenizer);

// A decoder step changes the strings of a line's tokens, which are joined after the last step.
using Decoder = std::function<void(std::vector<std::string> &)>;
std::vector<Decoder> readDecoders(const JsonFields &decoder);

} // namespace xfc
