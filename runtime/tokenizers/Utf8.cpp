// Handles UTF-8 and code points with utf8proc.
#include "tokenizers/Utf8.h"
#include <utf8proc.h>

namespace xfc {

static utf8proc_ssize_t iterate(std::string_view text, size_t at, utf8proc_int32_t *character) {
  return utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t *>(text.data()) + at,
                          static_cast<utf8proc_ssize_t>(text.size() - at), character);
}

// How many bytes from `at` on form the beginning of a character (table 3-7 of the Unicode standard); at least one.
static size_t brokenLength(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at), second = byte(at + 1);
  const unsigned least = lead == 0xE0   ? 0xA0
                         : lead == 0xF0 ? 0x90
                                        : 0x80,
                 most = lead == 0xED   ? 0x9F
                        : lead == 0xF4 ? 0x8F
                                       : 0xBF;
  if (lead < 0xE0 || lead > 0xF4 || second < least || second > most)
    return 1;
  return lead >= 0xF0 && (byte(at + 2) & 0xC0) == 0x80 ? 3 : 2;
}

std::string validUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t character;
    const utf8proc_ssize_t length = iterate(text, at, &character);
    if (length > 0) {
      valid += text.substr(at, static_cast<size_t>(length));
      at += static_cast<size_t>(length);
    } else {
      valid += "\xEF\xBF\xBD";
      at += brokenLength(text, at);
    }
  }
  return valid;
}

char32_t nextCharacter(std::string_view text, size_t &at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80)
    return ++at, lead;
  utf8proc_int32_t character;
  const utf8proc_ssize_t length = iterate(text, at, &character);
  at += length > 0 ? static_cast<size_t>(length) : 1;
  return length > 0 ? static_cast<char32_t>(character) : U'\uFFFD';
}

void appendCharacter(std::string &text, char32_t character) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char *>(bytes), static_cast<size_t>(length));
}

bool isWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool isSpace(char32_t character) { return isWhiteSpace(character) || (character >= 0x1C && character <= 0x1F); }

std::string_view withoutOuterSpace(std::string_view text) {
  size_t begin = text.size(), end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    if (!isSpace(nextCharacter(text, at))) {
      begin = std::min(begin, before);
      end = at;
    }
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

static utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

bool isLetter(char32_t character) {
  const utf8proc_category_t found = category(character);
  return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_LO;
}

bool isNumber(char32_t character) {
  const utf8proc_category_t found = category(character);
  return found >= UTF8PROC_CATEGORY_ND && found <= UTF8PROC_CATEGORY_NO;
}

// Unicode's properties Case_Ignorable and Cased (definitions D136 and D135), except for a few symbols that are cased.
static bool isCaseIgnorable(char32_t character) {
  const utf8proc_category_t found = category(character);
  return found == UTF8PROC_CATEGORY_MN || found == UTF8PROC_CATEGORY_ME || found == UTF8PROC_CATEGORY_CF ||
         found == UTF8PROC_CATEGORY_LM || found == UTF8PROC_CATEGORY_SK ||
         std::u32string_view(U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A")
                 .find(character) != std::u32string_view::npos;
}

static bool isCased(char32_t character) {
  const utf8proc_category_t found = category(character);
  return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_LT;
}

// The condition Final_Sigma of the Unicode standard, table 3-17.
static bool endsWord(std::u32string_view text, size_t at) {
  size_t before = at, after = at + 1;
  while (before > 0 && isCaseIgnorable(text[before - 1]))
    --before;
  while (after < text.size() && isCaseIgnorable(text[after]))
    ++after;
  return before > 0 && isCased(text[before - 1]) && !(after < text.size() && isCased(text[after]));
}

std::u32string lowerCase(std::u32string_view text) {
  std::u32string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at)
    if (text[at] == U'\u0130') // the one character whose lower case has two characters
      result += U"i\u0307";
    else if (text[at] == U'\u03A3')
      result += endsWord(text, at) ? U'\u03C2' : U'\u03C3';
    else
      result += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[at])));
  return result;
}

bool isWordCharacter(char32_t character) {
  const utf8proc_category_t found = category(character);
  return isLetter(character) || (found >= UTF8PROC_CATEGORY_MN && found <= UTF8PROC_CATEGORY_ME) ||
         found == UTF8PROC_CATEGORY_ND || found == UTF8PROC_CATEGORY_NL || found == UTF8PROC_CATEGORY_PC ||
         character == 0x200C || character == 0x200D;
}

} // namespace xfc
