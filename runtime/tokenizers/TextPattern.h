// The patterns that a tokenizer.json replaces: a string, or runs of a character.
#pragma once

#include "tokenizers/JsonFields.h"
#include <string>

namespace xfc {

class TextPattern {
public:
  // {"String": "..."} or {"Regex": "..."}; of regular expressions only a single character or \s, and runs of them, are
  // supported. Throws Error for others.
  explicit TextPattern(const JsonFields &pattern);
  std::string replaced(const std::string &line, const std::string &content) const;

private:
  std::string text;
  size_t least = 0, most = 0; // bounds on the length of a run; 0: not a run, but the text itself
  bool anySpace = false;
};

} // namespace xfc
