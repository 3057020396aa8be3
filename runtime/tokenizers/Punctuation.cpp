// Normalizes punctuation by the rules of Moses' script normalize-punctuation.perl.
#include "tokenizers/Punctuation.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <span>
#include <utf8proc.h>

namespace xfc {
namespace {

using Text = std::u32string;

enum class Neighbour { Any, Digit, Letter, Stop };

bool is(char32_t c, Neighbour kind) {
  switch (kind) {
  case Neighbour::Any:
    return true;
  case Neighbour::Digit:
    return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
  case Neighbour::Letter:
    return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
  case Neighbour::Stop:
    return c != 0 && std::u32string_view(U".!:?;,").find(c) != std::u32string_view::npos;
  }
  return false;
}

// Replaces a string wherever it stands, or only between characters of certain kinds. These are kept, but belong to the
// match: the next match begins after them.
struct Rule {
  std::u32string_view text, by;
  Neighbour before = Neighbour::Any, after = Neighbour::Any;
};

void replaceBy(const Rule &rule, Text &text) {
  const size_t left = rule.before != Neighbour::Any, right = rule.after != Neighbour::Any;
  size_t found = text.find(rule.text);
  if (found == Text::npos)
    return;
  Text result;
  size_t done = 0; // up to where the text is in the result
  while (found != Text::npos) {
    const size_t end = found + rule.text.size();
    if (found < done + left || end + right > text.size() || (left && !is(text[found - 1], rule.before)) ||
        (right && !is(text[end], rule.after))) {
      found = text.find(rule.text, found + 1);
      continue;
    }
    result.append(text, done, found - done);
    result += rule.by;
    result.append(text, end, right);
    done = end + right;
    found = text.find(rule.text, done);
  }
  result.append(text, done);
  text = std::move(result);
}

void replaceBy(std::span<const Rule> rules, Text &text) {
  for (const Rule &rule : rules)
    replaceBy(rule, text);
}

void joinBlanks(Text &text) {
  const auto end = std::ranges::unique(text, [](char32_t a, char32_t b) { return a == U' ' && b == U' '; });
  text.erase(end.begin(), end.end());
}

using enum Neighbour;
constexpr Rule bracketsApart[] = {{U"\r", U""}, {U"(", U" ("}, {U")", U") "}};
constexpr Rule blanks[] = {{U") ", U")", Any, Stop}, {U"( ", U"("}, {U" )", U")"},
                           {U" %", U"%", Digit},     {U" :", U":"}, {U" ;", U";"}};
// Quotes of the Penn treebank, then of Unicode.
constexpr Rule quotesAndDashes[] = {{U"`", U"'"},       {U"''", U" \" "},  {U"\u201E", U"\""}, {U"\u201C", U"\""},
                                    {U"\u201D", U"\""}, {U"\u2013", U"-"}, {U"\u2014", U" - "}};
constexpr Rule apostrophes[] = {{U"\u00B4", U"'"},
                                {U"\u2018", U"'", Letter, Letter},
                                {U"\u2019", U"'", Letter, Letter},
                                {U"\u2018", U"'"},
                                {U"\u201A", U"'"},
                                {U"\u2019", U"'"},
                                {U"''", U"\""},
                                {U"\u2026", U"..."}};
// U+00A0 stands beside French quotes and punctuation, and before units.
constexpr Rule unbrokenBlanks[] = {{U"\u00A0\u00AB\u00A0", U"\""},
                                   {U"\u00AB\u00A0", U"\""},
                                   {U"\u00AB", U"\""},
                                   {U"\u00A0\u00BB\u00A0", U"\""},
                                   {U"\u00A0\u00BB", U"\""},
                                   {U"\u00BB", U"\""},
                                   {U"\u00A0%", U"%"},
                                   {U"n\u00BA\u00A0", U"n\u00BA "},
                                   {U"\u00A0:", U":"},
                                   {U"\u00A0\u00BAC", U" \u00BAC"},
                                   {U"\u00A0cm", U" cm"},
                                   {U"\u00A0?", U"?"},
                                   {U"\u00A0!", U"!"},
                                   {U"\u00A0;", U";"},
                                   {U",\u00A0", U", "}};
constexpr Rule commaAfterQuote[] = {{U",\"", U"\","}};
constexpr Rule commaInNumber[] = {{U"\u00A0", U",", Digit, Digit}};
constexpr Rule dotInNumber[] = {{U"\u00A0", U".", Digit, Digit}};

// For English: moves the dots and commas that follow a quote to the place before it.
void moveStopsIntoQuote(Text &text) {
  for (size_t quote = text.find(U'"'); quote != Text::npos; quote = text.find(U'"', quote + 1)) {
    size_t end = std::min(text.find_first_not_of(U",.", quote + 1), text.size());
    std::rotate(text.begin() + static_cast<std::ptrdiff_t>(quote),
                text.begin() + static_cast<std::ptrdiff_t>(quote + 1), text.begin() + static_cast<std::ptrdiff_t>(end));
    quote = end - 1;
  }
}

// For other languages: moves the dots that precede a quote to the place after it, unless the line ends there or a tag
// follows. The blanks after the quote and the next character belong to the match.
void moveDotsOutOfQuote(Text &text) {
  for (size_t dot = text.find(U'.'); dot != Text::npos; dot = text.find(U'.', dot)) {
    const size_t quote = std::min(text.find_first_not_of(U'.', dot), text.size());
    if (quote + 1 >= text.size() || text[quote] != U'"' || text[quote + 1] == U'<') {
      dot = quote;
      continue;
    }
    std::rotate(text.begin() + static_cast<std::ptrdiff_t>(dot), text.begin() + static_cast<std::ptrdiff_t>(quote),
                text.begin() + static_cast<std::ptrdiff_t>(quote + 1));
    size_t next = quote + 1;
    while (next < text.size() && isSpace(text[next]))
      ++next;
    dot = next + (next < text.size() && text[next] != U'<');
  }
}

} // namespace

std::string normalizePunctuation(std::string_view line, std::string_view language) {
  Text text;
  text.reserve(line.size());
  for (size_t at = 0; at < line.size();)
    text += nextCharacter(line, at);

  replaceBy(bracketsApart, text);
  joinBlanks(text);
  replaceBy(blanks, text);
  replaceBy(quotesAndDashes, text);
  joinBlanks(text);
  replaceBy(apostrophes, text);
  replaceBy(unbrokenBlanks, text);
  joinBlanks(text);
  const bool commas = language == "de" || language == "es" || language == "fr";
  if (language == "en")
    moveStopsIntoQuote(text);
  if (commas) {
    replaceBy(commaAfterQuote, text);
    moveDotsOutOfQuote(text);
  }
  if (commas || language == "cs" || language == "cz")
    replaceBy(commaInNumber, text);
  else
    replaceBy(dotInNumber, text);

  const auto first = std::ranges::find_if_not(text, isSpace);
  const auto last = std::find_if_not(text.rbegin(), std::make_reverse_iterator(first), isSpace).base();
  std::string result;
  result.reserve(line.size());
  for (auto c = first; c < last; ++c)
    appendCharacter(result, *c);
  return result;
}

} // namespace xfc
