// Splits a line into sentences, and sentences that are too long further.
#include "tokenizers/Sentences.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <array>
#include <string>

namespace xfc {

namespace {

bool isOneOf(char32_t character, std::u32string_view characters) {
  return characters.find(character) != std::u32string_view::npos;
}

// What ends a sentence if white space follows.
bool isEnd(char32_t character) {
  return isOneOf(character, U".!?\u2026\u203C\u203D\u2047\u2048\u2049\u037E\u0589\u061F\u06D4\u0700\u0701\u0964\u0965"
                            U"\u104A\u104B\u1362\u1367\u1368\u17D4\u17D5\u1803\u1809");
}
// What ends a sentence whatever follows.
bool isWideEnd(char32_t character) { return isOneOf(character, U"\u3002\uFF01\uFF1F\uFF0E\uFF61"); }
// What closes behind the end of a sentence.
bool isClosing(char32_t character) {
  return isOneOf(character, U")]}\"'*_\u00BB\u00AB\u2019\u201D\u201C\u2018\u203A\u2039\u3009\u300B\u300D\u300F\u3011"
                            U"\u3015\u3017\uFF09\uFF3D\uFF5D\uFF63");
}
// What opens before the first letter of one.
bool isOpening(char32_t character) {
  return isOneOf(character, U"([{\"'*_\u00AB\u00BB\u2018\u201C\u201E\u201A\u2039\u203A\u00BF\u00A1\u2013\u2014-");
}
// What a long sentence is cut behind: with white space behind it, or without.
bool isPause(char32_t character) {
  return isOneOf(character, U",;:\u2013\u2014)\u060C\u061B\u00B7\u055D\u1363\u1364\u1365") || isEnd(character);
}
bool isWidePause(char32_t character) { return isOneOf(character, U"\u3001\uFF0C\uFF1B\uFF1A") || isWideEnd(character); }

bool isDigit(char32_t character) { return character >= '0' && character <= '9'; }

bool isLower(char32_t character) {
  const char32_t text[] = {character, 0};
  // A letter that has no case is its own lower case, too, but only Latin, Greek, Cyrillic, Armenian and the like have
  // one.
  return isLetter(character) && (character < 0x590 || (character >= 0x1E00 && character < 0x2000)) &&
         lowerCase(text) == text;
}

// Words that a dot follows within a sentence, in lower case. Words that are also others are left out.
constexpr std::array abbreviations = {"mr",
                                      "mrs",
                                      "ms",
                                      "dr",
                                      "prof",
                                      "st",
                                      "sr",
                                      "jr",
                                      "gen",
                                      "col",
                                      "capt",
                                      "lt",
                                      "sgt",
                                      "rev",
                                      "hon",
                                      "gov",
                                      "sen",
                                      "rep",
                                      "pres",
                                      "messrs",
                                      "mme",
                                      "mlle",
                                      "hr",
                                      "fr",
                                      "sig",
                                      "dott",
                                      "avv",
                                      "sra",
                                      "srta",
                                      "dra",
                                      "vs",
                                      "cf",
                                      "al",
                                      "approx",
                                      "ca",
                                      "inc",
                                      "ltd",
                                      "corp",
                                      "dept",
                                      "est",
                                      "jan",
                                      "feb",
                                      "apr",
                                      "aug",
                                      "sept",
                                      "oct",
                                      "nov",
                                      "dec",
                                      "bzw",
                                      "usw",
                                      "evtl",
                                      "ggf",
                                      "inkl",
                                      "str",
                                      "tel",
                                      "vgl",
                                      "zzgl",
                                      "bspw",
                                      "bd",
                                      "hrsg",
                                      "mio",
                                      "mrd",
                                      "boul",
                                      "chap",
                                      "env",
                                      "aprox",
                                      "ecc",
                                      "bijv",
                                      "dhr",
                                      "mevr",
                                      "np",
                                      "tzw",
                                      "tzn",
                                      "ul",
                                      "nap\xC5\x99",
                                      "tzv",
                                      "ev",
                                      "esim",
                                      "pl",
                                      "kl",
                                      "ung",
                                      "resp",
                                      "etc",
                                      "\xD1\x83\xD0\xBB",
                                      "\xD0\xB8\xD0\xBC",
                                      "\xD1\x81\xD1\x82\xD1\x80",
                                      "\xD1\x80\xD1\x83\xD0\xB1"};
// Those that are abbreviations if a number follows.
constexpr std::array beforeNumbers = {"no",         "nos", "nr",   "art", "p",    "pp",         "pag",
                                      "p\xC3\xA1g", "fig", "figs", "vol", "vols", "n\xC3\xBAm", "num",
                                      "sec",        "ch",  "eq",   "abs", "kap",  "s"};

std::string inLowerCase(std::string_view text) {
  std::u32string characters;
  for (size_t at = 0; at < text.size();)
    characters += nextCharacter(text, at);
  std::string result;
  for (const char32_t character : lowerCase(characters))
    appendCharacter(result, character);
  return result;
}

// Whether the word that a dot follows is one after which a sentence goes on; `next` is the first letter or number
// behind, or 0.
bool goesOn(std::string_view word, char32_t next) {
  size_t characters = 0, digits = 0;
  bool dots = false;
  char32_t first = 0;
  for (size_t at = 0; at < word.size(); ++characters) {
    const char32_t character = nextCharacter(word, at);
    first = characters == 0 ? character : first;
    digits += isDigit(character);
    dots |= character == '.';
  }
  if (characters == 0)
    return false;
  if (digits == characters) // an ordinal, perhaps
    return characters <= 2;
  if (dots || (characters == 1 && isLetter(first))) // "e.g." and initials
    return true;
  constexpr size_t longest = 16; // bytes
  if (word.size() > longest)
    return false;
  const std::string known = inLowerCase(word);
  return std::ranges::find(abbreviations, known) != abbreviations.end() ||
         (isNumber(next) && std::ranges::find(beforeNumbers, known) != beforeNumbers.end());
}

// The first character at or behind `at` that opens nothing; 0 at the end.
char32_t firstOf(std::string_view line, size_t at) {
  char32_t character = 0;
  constexpr int most = 8; // more are no brackets
  for (int count = 0; at < line.size() && count < most; ++count) {
    character = nextCharacter(line, at);
    if (!isOpening(character))
      break;
  }
  return character;
}

} // namespace

std::vector<std::string_view> sentencesOf(std::string_view line) {
  std::vector<std::string_view> sentences;
  size_t begin = 0, word = 0; // of the sentence, and of the word that is read
  bool hasWord = false;       // whether the sentence has a letter or a number
  const auto add = [&](size_t end) {
    if (const std::string_view sentence = withoutOuterSpace(line.substr(begin, end - begin)); !sentence.empty())
      sentences.push_back(sentence);
    begin = end;
    hasWord = false;
  };
  for (size_t at = 0; at < line.size();) {
    const size_t place = at;
    const char32_t character = nextCharacter(line, at);
    hasWord |= isLetter(character) || isNumber(character);
    if (!isEnd(character) && !isWideEnd(character)) {
      if (isSpace(character) || isOpening(character))
        word = at;
      continue;
    }
    // Several of them, and what closes behind them.
    bool wide = isWideEnd(character), alone = character == '.';
    size_t end = at;
    for (bool closing = false; at < line.size(); end = at) {
      const char32_t next = nextCharacter(line, at);
      closing |= isClosing(next);
      if (!isClosing(next) && (closing || (!isEnd(next) && !isWideEnd(next))))
        break;
      wide |= isWideEnd(next);
      alone &= isClosing(next);
    }
    at = end;
    size_t behind = end;
    while (behind < line.size()) {
      size_t next = behind;
      if (!isSpace(nextCharacter(line, next)))
        break;
      behind = next;
    }
    const char32_t next = firstOf(line, behind);
    const bool goes = alone && goesOn(line.substr(word, place - word), next);
    if (hasWord && (wide || (behind > end && !isLower(next) && !goes)))
      add(end);
    if (behind > end) {
      at = behind;
      word = at;
    }
  }
  if (!hasWord && !sentences.empty()) { // what follows the last one belongs to it
    const size_t first = static_cast<size_t>(sentences.back().data() - line.data());
    sentences.back() = withoutOuterSpace(line.substr(first));
  } else {
    add(line.size());
  }
  return sentences;
}

std::vector<std::string_view> partsThatFit(std::string_view sentence,
                                           const std::function<bool(std::string_view)> &fits) {
  std::vector<std::string_view> parts, open = {sentence};
  while (!open.empty()) {
    const std::string_view part = open.back();
    open.pop_back();
    // Places to cut, from the best kind to the worst: the one nearest to the middle of each.
    constexpr int kinds = 3;
    size_t cuts[kinds] = {};
    if (!fits(part)) {
      const auto distance = [&](size_t at) {
        return at > part.size() / 2 ? at - part.size() / 2 : part.size() / 2 - at;
      };
      char32_t before = 0;
      for (size_t at = 0; at < part.size();) {
        const size_t place = at;
        const char32_t character = nextCharacter(part, at);
        const bool space = isSpace(character);
        const bool known[kinds] = {(space && isPause(before)) || isWidePause(before), space, true};
        for (int kind = 0; kind < kinds; ++kind)
          if (place > 0 && known[kind] && (kind == kinds - 1 || distance(place) <= part.size() / 4) &&
              (cuts[kind] == 0 || distance(place) < distance(cuts[kind])))
            cuts[kind] = place;
        before = character;
      }
    }
    const size_t *cut = std::ranges::find_if(cuts, [](size_t place) { return place > 0; });
    if (cut == std::end(cuts)) {
      parts.push_back(part);
      continue;
    }
    for (const std::string_view half : {part.substr(*cut), part.substr(0, *cut)})
      if (const std::string_view text = withoutOuterSpace(half); !text.empty())
        open.push_back(text);
  }
  return parts;
}

} // namespace xfc
