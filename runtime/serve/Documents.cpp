// Finds what is translated in a text or a piece of HTML.
#include "serve/Documents.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace xfc {

namespace {

bool isBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool isAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return result;
}

// The text without the white space at its two ends.
std::string_view trimmed(std::string_view text) {
  size_t begin = 0, end = text.size();
  while (begin < end && isBlank(text[begin]))
    ++begin;
  while (end > begin && isBlank(text[end - 1]))
    --end;
  return text.substr(begin, end - begin);
}

// Whether there is nothing but white space, of any script.
bool isWhite(std::string_view text) {
  for (size_t at = 0; at < text.size();)
    if (!isWhiteSpace(nextCharacter(text, at)))
      return false;
  return true;
}

struct Tag {
  std::string name; // in lower case; empty: a comment, a declaration or the like
  bool closes = false, empty = false, kept = false;
  size_t end; // one past its last byte; noEnd: the text ends within the tag, so that no other tag follows
};
constexpr size_t noEnd = std::string_view::npos;

// Whether the attribute says that the element is not to be translated.
bool keeps(std::string_view name, std::string_view value) {
  if (lower(name) == "translate")
    return lower(value) == "no";
  if (lower(name) != "class")
    return false;
  for (size_t begin = 0; begin < value.size();) {
    const size_t end = std::min(value.find_first_of(" \t\n\r\f", begin), value.size());
    if (value.substr(begin, end - begin) == "notranslate")
      return true;
    begin = end + 1;
  }
  return false;
}

// The tag that begins at `at`, where there is a '<'; nothing if it is text.
std::optional<Tag> tagAt(std::string_view html, size_t at) {
  const auto after = [&](std::string_view mark, size_t from) {
    const size_t found = html.find(mark, from);
    return found == std::string_view::npos ? html.size() : found + mark.size();
  };
  const std::string_view rest = html.substr(at);
  if (rest.starts_with("<!--"))
    return Tag{.end = after("-->", at + 4)};
  if (rest.starts_with("<!") || rest.starts_with("<?"))
    return Tag{.end = after(">", at)};
  Tag tag{.closes = rest.starts_with("</"), .end = 0};
  size_t i = at + 1 + tag.closes;
  if (i >= html.size() || !isAsciiLetter(html[i]))
    return std::nullopt;
  const size_t name = i;
  while (i < html.size() && !isBlank(html[i]) && html[i] != '>' && html[i] != '/')
    ++i;
  tag.name = lower(html.substr(name, i - name));
  while (i < html.size() && html[i] != '>') {
    if (isBlank(html[i]) || html[i] == '/') {
      tag.empty = html[i++] == '/';
      continue;
    }
    const size_t begin = i++;
    while (i < html.size() && !isBlank(html[i]) && html[i] != '=' && html[i] != '>' && html[i] != '/')
      ++i;
    const std::string_view attribute = html.substr(begin, i - begin);
    size_t next = i;
    while (next < html.size() && isBlank(html[next]))
      ++next;
    std::string_view value;
    if (next < html.size() && html[next] == '=') {
      i = next + 1;
      while (i < html.size() && isBlank(html[i]))
        ++i;
      if (i < html.size() && (html[i] == '"' || html[i] == '\'')) {
        const size_t end = std::min(html.find(html[i], i + 1), html.size());
        value = html.substr(i + 1, end - i - 1);
        i = std::min(end + 1, html.size());
      } else {
        const size_t from = i;
        while (i < html.size() && !isBlank(html[i]) && html[i] != '>')
          ++i;
        value = html.substr(from, i - from);
      }
    }
    tag.kept |= keeps(attribute, value);
  }
  tag.end = i < html.size() ? i + 1 : noEnd;
  return tag;
}

// The next tag, and moves `at` to its beginning; nothing if there is no other tag that ends.
std::optional<Tag> nextTag(std::string_view html, size_t &at) {
  while ((at = html.find('<', at)) != std::string_view::npos) {
    if (std::optional<Tag> tag = tagAt(html, at))
      return tag->end == noEnd ? std::nullopt : tag;
    ++at;
  }
  return std::nullopt;
}

bool isVoid(const std::string &name) {
  constexpr std::array names = {"area",  "base", "br",   "col",   "embed",  "hr",    "img",
                                "input", "link", "meta", "param", "source", "track", "wbr"};
  return std::ranges::find(names, name) != names.end();
}

// Scripts and style sheets end with their end tag, whatever is in them.
bool isRaw(const Tag &tag) { return !tag.closes && (tag.name == "script" || tag.name == "style"); }

size_t endOfRaw(std::string_view html, const Tag &tag) {
  for (size_t at = tag.end; (at = html.find("</", at)) != std::string_view::npos; at += 2)
    if (lower(html.substr(at + 2, tag.name.size())) == tag.name)
      return std::min(html.find('>', at), html.size() - 1) + 1;
  return html.size();
}

// Where the element that begins with `tag` ends: after its end tag, or at the end of the text.
size_t endOfElement(std::string_view html, const Tag &tag) {
  if (isVoid(tag.name) || tag.empty)
    return tag.end;
  size_t depth = 1, at = tag.end;
  while (const std::optional<Tag> next = nextTag(html, at)) {
    at = isRaw(*next) ? endOfRaw(html, *next) : next->end;
    if (next->name != tag.name || next->empty)
      continue;
    depth += next->closes ? -1 : 1;
    if (depth == 0)
      return at;
  }
  return html.size();
}

constexpr struct {
  std::string_view name;
  char32_t character;
} entities[] = {{"amp", '&'},      {"lt", '<'},       {"gt", '>'},        {"quot", '"'},     {"apos", '\''},
                {"nbsp", 0xA0},    {"copy", 0xA9},    {"reg", 0xAE},      {"laquo", 0xAB},   {"raquo", 0xBB},
                {"ndash", 0x2013}, {"mdash", 0x2014}, {"lsquo", 0x2018},  {"rsquo", 0x2019}, {"ldquo", 0x201C},
                {"rdquo", 0x201D}, {"bdquo", 0x201E}, {"hellip", 0x2026}, {"euro", 0x20AC},  {"trade", 0x2122}};

// Where what looks like a character reference ends that begins with the '&' at `at`; 0 if it looks like none.
size_t endOfReference(std::string_view text, size_t at) {
  constexpr size_t longest = 33;
  for (size_t i = at + 1; i < text.size() && i - at <= longest; ++i)
    if (text[i] == ';')
      return i > at + 1 ? i + 1 : 0;
    else if (!isAsciiLetter(text[i]) && !(text[i] >= '0' && text[i] <= '9') && text[i] != '#')
      return 0;
  return 0;
}

// The character of a reference that begins with the '&' at `at`, and where the reference ends.
std::optional<std::pair<char32_t, size_t>> referenceAt(std::string_view text, size_t at) {
  const size_t end = endOfReference(text, at);
  if (end == 0)
    return std::nullopt;
  const std::string_view name = text.substr(at + 1, end - at - 2);
  for (const auto &[known, character] : entities)
    if (name == known)
      return std::pair{character, end};
  if (!name.starts_with('#') || name.size() < 2)
    return std::nullopt;
  const bool hexadecimal = name[1] == 'x' || name[1] == 'X';
  const std::string_view digits = name.substr(1 + hexadecimal);
  const std::string_view allowed = hexadecimal ? "0123456789abcdef" : "0123456789";
  uint32_t value = 0;
  for (const char c : lower(digits)) {
    const size_t digit = allowed.find(c);
    if (digit == std::string_view::npos)
      return std::nullopt;
    value = value * (hexadecimal ? 16 : 10) + static_cast<uint32_t>(digit);
  }
  if (digits.empty() || digits.size() > 7 || value < ' ' || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
    return std::nullopt;
  return std::pair{static_cast<char32_t>(value), end};
}

} // namespace

void Document::addLine(std::string_view before, std::string line, std::string_view after) {
  between.back() += before;
  texts.push_back(std::move(line));
  between.emplace_back(after);
}

Document Document::ofText(std::string_view text) {
  Document document;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    const std::string_view ending = text.substr(end, 1);
    const bool carriage = line.ends_with('\r');
    if (carriage)
      line.remove_suffix(1);
    if (trimmed(line).empty())
      document.between.back() += line;
    else
      document.addLine("", std::string(line), "");
    document.between.back() += carriage ? "\r" : "";
    document.between.back() += ending;
    begin = end + 1;
  }
  return document;
}

// A text between two tags. References that are not known stay, and so separate what is translated.
void Document::addHtmlText(std::string_view text) {
  std::string line;
  size_t begin = 0; // of the line
  const auto finish = [&](size_t end) {
    const std::string_view whole = text.substr(begin, end - begin), inner = trimmed(whole);
    if (isWhite(line)) {
      between.back() += whole;
    } else {
      const std::string_view spoken = trimmed(line);
      const size_t before = static_cast<size_t>(inner.data() - whole.data());
      addLine(whole.substr(0, before), std::string(spoken), whole.substr(before + inner.size()));
    }
    line.clear();
  };
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '&') {
      line += isBlank(text[at]) ? ' ' : text[at]; // a line has no line breaks
      ++at;
      continue;
    }
    if (const auto reference = referenceAt(text, at)) {
      appendCharacter(line, reference->first);
      at = reference->second;
      continue;
    }
    const size_t end = endOfReference(text, at);
    if (end == 0) { // a plain '&'
      line += text[at++];
      continue;
    }
    finish(at);
    between.back() += text.substr(at, end - at);
    begin = at = end;
  }
  finish(text.size());
}

Document Document::ofHtml(std::string_view html) {
  Document document;
  document.html = true;
  size_t begin = 0, at = 0;
  while (const std::optional<Tag> tag = nextTag(html, at)) {
    document.addHtmlText(html.substr(begin, at - begin));
    begin = isRaw(*tag) ? endOfRaw(html, *tag) : tag->kept && !tag->closes ? endOfElement(html, *tag) : tag->end;
    document.between.back() += html.substr(at, begin - at);
    at = begin;
  }
  document.addHtmlText(html.substr(begin));
  return document;
}

void Document::split(const std::function<std::vector<std::string_view>(std::string_view)> &partsOf) {
  std::vector<std::string> parts, around = {between.front()};
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string_view line = texts[i];
    const char *end = line.data(); // of the last part
    for (const std::string_view part : partsOf(line)) {
      around.back().append(end, part.data());
      parts.emplace_back(part);
      around.emplace_back();
      end = part.data() + part.size();
    }
    around.back().append(end, line.data() + line.size());
    around.back() += between[i + 1];
  }
  texts = std::move(parts);
  between = std::move(around);
}

std::string Document::with(std::span<const std::string> translations) const {
  std::string result = between.front();
  for (size_t i = 0; i < texts.size(); ++i) {
    for (const char c : translations[i])
      if (html && c == '<')
        result += "&lt;";
      else if (html && c == '>')
        result += "&gt;";
      else if (html && c == '&')
        result += "&amp;";
      else
        result += c;
    result += between[i + 1];
  }
  return result;
}

} // namespace xfc
