// The patterns that a tokenizer.json replaces.
#include "tokenizers/TextPattern.h"
#include "tokenizers/Utf8.h"
#include <limits>

namespace xfc {

TextPattern::TextPattern(const JsonFields &pattern) {
  if (pattern.has("String")) {
    text = pattern.string("String");
    if (text.empty())
      pattern.refuse("expected a string that is not empty");
    return;
  }
  const std::string regex = pattern.string("Regex");
  size_t at = 0;
  if (regex.starts_with("\\s")) {
    anySpace = true;
    at = 2;
  } else if (!regex.empty() && std::string_view("\\^$.|?*+()[]{}").find(regex[0]) == std::string_view::npos) {
    nextCharacter(regex, at);
    text = regex.substr(0, at);
  }
  const std::string rest = regex.substr(at);
  most = rest.empty() ? 1 : std::numeric_limits<size_t>::max();
  if (rest.empty() || rest == "+")
    least = 1;
  else if (rest.size() == 4 && rest[0] == '{' && rest[1] > '0' && rest[1] <= '9' && rest.ends_with(",}"))
    least = static_cast<size_t>(rest[1] - '0');
  if (at == 0 || least == 0)
    pattern.refuse("unsupported regular expression; expected one character, \\s, or a run of either");
}

std::string TextPattern::replaced(const std::string &line, const std::string &content) const {
  std::string result;
  if (least == 0) {
    for (size_t at = 0;;) {
      const size_t next = line.find(text, at);
      if (next == std::string::npos)
        return result.append(line, at);
      result.append(line, at, next - at).append(content);
      at = next + text.size();
    }
  }
  for (size_t at = 0; at < line.size();) {
    size_t end = at;
    for (size_t count = 0;; ++count) {
      size_t behind = end;
      const bool more = count < most && end < line.size();
      const char32_t character = more ? nextCharacter(line, behind) : U' ';
      if (more && (anySpace ? isWhiteSpace(character) : line.compare(end, behind - end, text) == 0)) {
        end = behind;
        continue;
      }
      if (count >= least) {
        result += content;
        break;
      }
      if (count == 0)
        nextCharacter(line, end);
      result.append(line, at, end - at);
      break;
    }
    at = end;
  }
  return result;
}

} // namespace xfc
