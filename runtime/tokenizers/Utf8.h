// UTF-8 and code points, strictly: what is no valid UTF-8 becomes U+FFFD first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xfc {

// What is no character becomes U+FFFD, once for as many bytes as one might begin with (as Unicode recommends).
std::string validUtf8(std::string_view text);
// Of valid UTF-8: the character that begins at `at`, which is moved behind it.
char32_t nextCharacter(std::string_view text, size_t &at);
// How many bytes the character has that begins with `lead`.
inline size_t characterLength(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
void appendCharacter(std::string &text, char32_t character);

// Unicode's property White_Space.
bool isWhiteSpace(char32_t character);
// What Python's str.split() and str.strip() take for white space.
bool isSpace(char32_t character);
// General categories: letters (L), numbers (N), and what regular expressions call \w.
bool isLetter(char32_t character);
bool isNumber(char32_t character);
bool isWordCharacter(char32_t character);
// Small letters, as Python's str.lower(): a sigma at the end of a word is a final one.
std::u32string lowerCase(std::u32string_view text);

} // namespace xfc
