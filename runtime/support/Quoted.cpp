// Shows text from outside in messages.
#include "support/Quoted.h"
#include "support/LineReader.h"
#include <algorithm>

namespace xfc {

// Takes a character from the beginning of the text, and returns how it is shown.
static std::string takeShown(std::string_view &text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const size_t size = std::min<size_t>(lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4, text.size());
  const std::string_view character = text.substr(0, size);
  const bool isControl = lead < 0x20 || lead == 0x7F || (lead == 0xC2 && size == 2 && (character[1] & 0xE0) == 0x80);
  if (!isControl && invalidUtf8(character) == std::string_view::npos) {
    text.remove_prefix(size);
    return std::string(character);
  }
  text.remove_prefix(1);
  constexpr char digits[] = "0123456789abcdef";
  return lead == '\n'   ? "\\n"
         : lead == '\r' ? "\\r"
         : lead == '\t' ? "\\t"
                        : std::string("\\x") + digits[lead >> 4] + digits[lead & 15];
}

std::string escaped(std::string_view text, size_t most) {
  std::string shown;
  for (size_t characters = 0; !text.empty(); ++characters) {
    if (characters == most)
      return shown + "...";
    shown += takeShown(text);
  }
  return shown;
}

std::string inQuotes(std::string_view text, size_t most) { return "'" + escaped(text, most) + "'"; }

std::string listed(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

// The text; of one that is longer than `most` bytes, about `shown` at the beginning and the end, of whole characters.
static std::string withoutMiddle(std::string_view text, size_t most, size_t shown) {
  if (text.size() <= most)
    return std::string(text);
  const auto isInside = [&](size_t at) { return (text[at] & 0xC0) == 0x80; };
  size_t head = shown / 2, tail = text.size() - shown / 2;
  for (int i = 0; i < 3 && isInside(head); ++i)
    --head;
  for (int i = 0; i < 3 && isInside(tail); ++i)
    ++tail;
  return std::string(text.substr(0, head)).append(" ... ").append(text.substr(tail));
}

std::string oneLine(std::string_view message) {
  // A quotation of mostShown characters has at most four times as many bytes, and is left as it is.
  constexpr size_t most = 4000, mostOfWord = 4 * mostShown + 10, shownOfWord = mostShown;
  std::string shortened;
  for (size_t begin = 0; begin < message.size();) {
    const size_t end = message.find_first_of(" /", begin);
    const std::string_view word = message.substr(begin, end - begin);
    shortened += word.size() > mostOfWord ? withoutMiddle(word, mostOfWord, shownOfWord) : word;
    if (end == std::string_view::npos)
      break;
    shortened += message[end];
    begin = end + 1;
  }
  return withoutMiddle(escaped(withoutMiddle(shortened, most, most), std::string::npos), 2 * most, most);
}

} // namespace xfc
