// Implements the normalizers of a tokenizer.json.
#include "tokenizers/SentencePieceModel.h"
#include "tokenizers/TextPattern.h"
#include "tokenizers/TextSteps.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <cstring>
#include <utf8proc.h>

namespace xfc {
namespace {

// Unicode normalization forms (UAX 15). utf8proc decomposes and composes; marks are sorted here, because utf8proc would
// take quadratic time.
std::string unicodeForm(const std::string &text, bool compose, bool compatible) {
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto character = static_cast<utf8proc_int32_t>(nextCharacter(text, at));
    utf8proc_int32_t parts[32]; // the longest decomposition has 18 characters
    const utf8proc_ssize_t count = utf8proc_decompose_char(character, parts, 32, options, nullptr);
    if (count > 0 && count <= 32)
      characters.insert(characters.end(), parts, parts + count);
    else
      characters.push_back(character);
  }
  auto classOf = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t begin = 0; begin < characters.size();) {
    if (classOf(characters[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < characters.size() && classOf(characters[end]) != 0)
      ++end;
    std::stable_sort(characters.begin() + static_cast<std::ptrdiff_t>(begin),
                     characters.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](utf8proc_int32_t a, utf8proc_int32_t b) { return classOf(a) < classOf(b); });
    begin = end;
  }
  if (compose) {
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    characters.resize(static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0)));
  }
  std::string result;
  result.reserve(text.size());
  for (const utf8proc_int32_t character : characters)
    appendCharacter(result, static_cast<char32_t>(character));
  return result;
}

// Calls use(character, bytes) for each character of a text.
template <typename Use> void forEachCharacter(std::string_view text, Use use) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t character = nextCharacter(text, at);
    use(character, text.substr(begin, at - begin));
  }
}

std::string lowerCaseByCharacter(const std::string &text) {
  std::string result;
  forEachCharacter(text, [&](char32_t character, std::string_view) {
    if (character == 0x130) // the one character whose lower case has two characters
      result += "i\xCC\x87";
    else
      appendCharacter(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
  });
  return result;
}

std::string withoutAccents(const std::string &text) {
  std::string result;
  forEachCharacter(text, [&](char32_t character, std::string_view bytes) {
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
    if (category < UTF8PROC_CATEGORY_MN || category > UTF8PROC_CATEGORY_ME)
      result += bytes;
  });
  return result;
}

std::string stripped(const std::string &text, bool left, bool right) {
  size_t begin = left ? text.size() : 0, end = right ? 0 : text.size(), at = 0;
  forEachCharacter(text, [&](char32_t character, std::string_view bytes) {
    if (!isWhiteSpace(character)) {
      begin = std::min(begin, at);
      if (right)
        end = at + bytes.size();
    }
    at += bytes.size();
  });
  return begin < end ? text.substr(begin, end - begin) : "";
}

std::string fromBase64(const JsonFields &field) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : field.string()) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0 && c != '=')
      field.refuse("expected base64");
    if (value < 0)
      break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8)
      continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

// SentencePiece's normalization table as the library tokenizers applies it: a grapheme of at most five bytes is looked
// up as a whole, otherwise its characters are looked up one by one; the shortest entry that is a prefix of the
// looked-up text replaces it.
class CharsMap {
public:
  explicit CharsMap(const JsonFields &field) : map(fromBase64(field)) {
    if (const std::string fault = faultOfCharsMap(map); !fault.empty())
      field.refuse(fault);
  }

  std::string operator()(const std::string &text) const {
    if (map.empty())
      return text;
    std::string result;
    result.reserve(text.size());
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = endOfGrapheme(text, begin);
      const std::string_view grapheme = std::string_view(text).substr(begin, end - begin);
      if (grapheme.size() >= 6 || !replace(grapheme, result))
        forEachCharacter(grapheme, [&](char32_t, std::string_view bytes) {
          if (!replace(bytes, result))
            result += bytes;
        });
      begin = end;
    }
    return result;
  }

private:
  static size_t endOfGrapheme(const std::string &text, size_t begin) {
    size_t at = begin;
    char32_t last = nextCharacter(text, at);
    for (utf8proc_int32_t state = 0; at < text.size();) {
      size_t behind = at;
      const char32_t next = nextCharacter(text, behind);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last), static_cast<utf8proc_int32_t>(next),
                                           &state))
        break;
      last = next;
      at = behind;
    }
    return at;
  }

  uint32_t unit(size_t index) const { return word(4 + 4 * index); }
  uint32_t word(size_t at) const {
    uint32_t value;
    std::memcpy(&value, map.data() + at, sizeof value);
    return value;
  }

  // The table is a trie stored as a Darts double array, which faultOfCharsMap() has validated.
  bool replace(std::string_view text, std::string &result) const {
    auto children = [](uint32_t node) { return static_cast<size_t>(node >> 10) << ((node & 512) >> 6); };
    size_t at = children(unit(0));
    for (const char byte : text) {
      at ^= static_cast<unsigned char>(byte);
      const uint32_t node = unit(at);
      if ((node & (1u << 31 | 255)) != static_cast<unsigned char>(byte))
        return false;
      at ^= children(node);
      if (node >> 8 & 1) {
        result += map.c_str() + 4 + word(0) + (unit(at) & ~(1u << 31));
        return true;
      }
    }
    return false;
  }

  std::string map;
};

// Treats control characters and unusual blanks as SentencePiece's rule "nmt" does.
std::string nmt(const std::string &text) {
  std::string result;
  forEachCharacter(text, [&](char32_t c, std::string_view bytes) {
    if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
      return;
    if (c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
        c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD)
      result += ' ';
    else
      result += bytes;
  });
  return result;
}

} // namespace

std::vector<Normalizer> readNormalizers(const JsonFields &normalizer) {
  const std::string type = normalizer.string("type");
  if (type == "Sequence") {
    std::vector<Normalizer> steps;
    normalizer.each("normalizers", [&](const JsonFields &part) {
      for (Normalizer &step : readNormalizers(part))
        steps.push_back(std::move(step));
    });
    return steps;
  }
  for (const char *form : {"NFC", "NFD", "NFKC", "NFKD"})
    if (type == form)
      return {[compose = type.back() == 'C', compatible = type[2] == 'K'](const std::string &text) {
        return unicodeForm(text, compose, compatible);
      }};
  if (type == "Precompiled") {
    auto map = std::make_shared<CharsMap>(normalizer.at("precompiled_charsmap"));
    return {[map](const std::string &text) { return (*map)(text); }};
  }
  if (type == "Replace")
    return {[pattern = TextPattern(normalizer.at("pattern")), content = normalizer.shortString("content")](
                const std::string &text) { return pattern.replaced(text, content); }};
  if (type == "Strip")
    return {[left = normalizer.boolean("strip_left", true), right = normalizer.boolean("strip_right", true)](
                const std::string &text) { return stripped(text, left, right); }};
  if (type == "Prepend")
    return {[prefix = normalizer.shortString("prepend")](const std::string &text) {
      return text.empty() ? text : prefix + text;
    }};
  if (type == "Lowercase")
    return {lowerCaseByCharacter};
  if (type == "StripAccents")
    return {withoutAccents};
  if (type == "Nmt")
    return {nmt};
  normalizer.at("type").refuse("unknown normalizer; expected one of Sequence, NFC, NFD, NFKC, NFKD, Precompiled, "
                               "Replace, Strip, Prepend, Lowercase, StripAccents, Nmt");
}

} // namespace xfc
