// What a tokenizer.json replaces: a string, or runs of a character.
#pragma once

#include "tokenizers/JsonFields.h"
#include <string>

namespace xfc {

class TextPattern {
public:
  // {"String": "..."} or {"Regex": "..."}, of which one character or \s are known, and runs of them. Throws Error for
  // others.
  explicit TextPattern(const JsonFields &pattern);
  std::string replaced(const std::string &line, const std::string &content) const;

private:
  std::string text;
  size_t least = 0, most = 0; // of a run; 0: no run, the text itself
  bool anySpace = false;
};

} // namespace xfc
