// Maps bytes to the characters that byte-level tokenizers write them as.
#include "tokenizers/ByteCharacters.h"
#include "tokenizers/Utf8.h"
#include <array>

namespace xfc {
namespace {

struct Table {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 0x144> byte{};
  Table() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      character[b] = printable ? b : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};

const Table &table() {
  static const Table built;
  return built;
}

} // namespace

std::string bytesAsCharacters(std::string_view text) {
  std::string result;
  result.reserve(text.size() * 2);
  for (const char byte : text)
    appendCharacter(result, table().character[static_cast<unsigned char>(byte)]);
  return result;
}

std::string charactersAsBytes(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const char32_t character = nextCharacter(text, at);
    if (character >= table().byte.size() || table().byte[character] < 0)
      return std::string(text);
    result += static_cast<char>(table().byte[character]);
  }
  return result;
}

} // namespace xfc
