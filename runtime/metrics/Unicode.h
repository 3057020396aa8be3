// Splits UTF-8 into code points and words.
#pragma once

#include "tokenizers/Utf8.h"
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// An invalid UTF-8 byte becomes U+FFFD.
inline std::u32string codePoints(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    unsigned char lead = text[i];
    size_t length = lead < 0x80 ? 1 : lead >> 5 == 0x6 ? 2 : lead >> 4 == 0xE ? 3 : lead >> 3 == 0x1E ? 4 : 0;
    char32_t point = length < 2 ? lead : lead & (0x7F >> length);
    bool valid = length != 0 && i + length <= text.size();
    for (size_t k = 1; valid && k < length; ++k) {
      unsigned char next = text[i + k];
      valid = next >> 6 == 2;
      point = point << 6 | (next & 0x3F);
    }
    result.push_back(valid ? point : U'\uFFFD');
    i += valid ? length : 1;
  }
  return result;
}

// The words of a line, split as by Python's str.split().
inline std::vector<std::u32string> splitWords(std::u32string_view line) {
  std::vector<std::u32string> words;
  for (size_t i = 0; i < line.size();) {
    while (i < line.size() && isSpace(line[i]))
      ++i;
    size_t begin = i;
    while (i < line.size() && !isSpace(line[i]))
      ++i;
    if (i > begin)
      words.emplace_back(line.substr(begin, i - begin));
  }
  return words;
}

} // namespace xfc
