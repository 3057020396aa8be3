// Handles UTF-8 and code points strictly: invalid UTF-8 is first replaced by U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xfc {

// Replaces each maximal invalid byte sequence by one U+FFFD (as Unicode recommends).
std::string validUtf8(std::string_view text);
// For valid UTF-8: returns the character that begins at `at`, and advances `at` past it.
char32_t nextCharacter(std::string_view text, size_t &at);
// The number of bytes of the character that begins with `lead`.
inline size_t characterLength(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
void appendCharacter(std::string &text, char32_t character);

// Unicode's property White_Space.
bool isWhiteSpace(char32_t character);
// White space as Python's str.split() and str.strip() define it.
bool isSpace(char32_t character);
// The text without the white space at its ends.
std::string_view withoutOuterSpace(std::string_view text);
// General categories: letters (L), numbers (N), and what regular expressions call \w.
bool isLetter(char32_t character);
bool isNumber(char32_t character);
bool isWordCharacter(char32_t character);
// Lower-cases text as Python's str.lower() does: a sigma at the end of a word becomes a final sigma.
std::u32string lowerCase(std::u32string_view text);

} // namespace xfc
