// What a tokenizer.json does to text before its model: normalizers, which rewrite it, and pre-tokenizers, which cut it.
#pragma once

#include "tokenizers/JsonFields.h"
#include <functional>
#include <string>
#include <vector>

namespace xfc {

using Normalizer = std::function<std::string(std::string)>;

// The steps of a "normalizer" member. Throws Error for a kind that is not known, by its name.
std::vector<Normalizer> readNormalizers(const JsonFields &normalizer);

// A part of a line; `first` where it begins it.
struct Word {
  std::string text;
  bool first;
};
using PreTokenizer = std::function<void(std::vector<Word> &)>;
std::vector<PreTokenizer> readPreTokenizers(const JsonFields &preTokenizer);

// What takes the tokens of a line to its text: each step changes the strings, which are joined after the last one.
using Decoder = std::function<void(std::vector<std::string> &)>;
std::vector<Decoder> readDecoders(const JsonFields &decoder);

} // namespace xfc
