// Implements the pre-tokenizers of a tokenizer.json.
#include "tokenizers/ByteCharacters.h"
#include "tokenizers/Metaspace.h"
#include "tokenizers/TextSteps.h"
#include "tokenizers/Utf8.h"

namespace xfc {
namespace {

// Splits every word: cut(text, use) calls use(begin, end) for each part to keep.
template <typename Cut> void cutEach(std::vector<Word> &words, Cut cut) {
  std::vector<Word> parts;
  for (Word &word : words)
    cut(word.text, [&](size_t begin, size_t end) {
      if (begin < end)
        parts.push_back({word.text.substr(begin, end - begin), word.first && begin == 0});
    });
  words = std::move(parts);
}

enum class Kind { Letter, Number, Space, Other };

Kind kindOf(char32_t character) {
  return isWhiteSpace(character) ? Kind::Space
         : isLetter(character)   ? Kind::Letter
         : isNumber(character)   ? Kind::Number
                                 : Kind::Other;
}

// GPT-2's rule: contractions; letters, numbers or other characters, each with a preceding blank; white space, except
// for the last character if something follows.
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t endOfGpt2Word(const std::string &text, size_t begin) {
  if (text[begin] == '\'')
    for (const char *ending : {"s", "t", "re", "ve", "m", "ll", "d"})
      if (text.compare(begin + 1, std::char_traits<char>::length(ending), ending) == 0)
        return begin + 1 + std::char_traits<char>::length(ending);
  auto kindAt = [&](size_t at, size_t &behind) {
    behind = at;
    return kindOf(nextCharacter(text, behind));
  };
  size_t behind, at = begin;
  if (text[at] == ' ' && at + 1 < text.size() && kindAt(at + 1, behind) != Kind::Space)
    ++at;
  const Kind kind = kindAt(at, behind);
  size_t end = behind, last = at; // `last`: where the word's last character begins
  while (end < text.size() && kindAt(end, behind) == kind) {
    last = end;
    end = behind;
  }
  return kind == Kind::Space && end < text.size() && last > begin ? last : end;
}

PreTokenizer byteLevel(const JsonFields &settings) {
  settings.ignore({"trim_offsets"});
  return [blank = settings.boolean("add_prefix_space", true),
          cut = settings.boolean("use_regex", true)](std::vector<Word> &words) {
    if (blank)
      for (Word &word : words)
        if (!word.text.starts_with(' '))
          word.text.insert(word.text.begin(), ' ');
    if (cut)
      cutEach(words, [](const std::string &text, auto use) {
        for (size_t begin = 0; begin < text.size();) {
          const size_t end = endOfGpt2Word(text, begin);
          use(begin, end);
          begin = end;
        }
      });
    for (Word &word : words)
      word.text = bytesAsCharacters(word.text);
  };
}

PreTokenizer metaspacePreTokenizer(const JsonFields &settings) {
  return [space = Metaspace(settings)](std::vector<Word> &words) {
    for (Word &word : words) {
      std::string text;
      for (const char byte : word.text)
        if (byte == ' ')
          text += space.replacement;
        else
          text += byte;
      if (!text.starts_with(space.replacement) &&
          (space.prepend == Metaspace::Prepend::Always || (space.prepend == Metaspace::Prepend::First && word.first)))
        text.insert(0, space.replacement);
      word.text = std::move(text);
    }
    if (space.split)
      cutEach(words, [&](const std::string &text, auto use) {
        for (size_t begin = 0; begin < text.size();) {
          const size_t next = std::min(
              text.find(space.replacement,
                        begin + (begin == 0 && !text.starts_with(space.replacement) ? 0 : space.replacement.size())),
              text.size());
          use(begin, next);
          begin = next;
        }
      });
  };
}

// Splits at white space, which is dropped.
void splitAtWhiteSpace(std::vector<Word> &words) {
  cutEach(words, [](const std::string &text, auto use) {
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t here = at;
      if (isWhiteSpace(nextCharacter(text, at))) {
        use(begin, here);
        begin = at;
      }
    }
    use(begin, text.size());
  });
}

// \w+|[^\w\s]+
void splitAtWordEnds(std::vector<Word> &words) {
  auto kindOfCharacter = [](char32_t c) { return isWordCharacter(c) ? 0 : isWhiteSpace(c) ? 1 : 2; };
  cutEach(words, [&](const std::string &text, auto use) {
    size_t begin = 0;
    int kind = 1;
    for (size_t at = 0; at < text.size();) {
      const size_t here = at;
      if (const int next = kindOfCharacter(nextCharacter(text, at)); next != kind) {
        if (kind != 1)
          use(begin, here);
        begin = here;
        kind = next;
      }
    }
    if (kind != 1)
      use(begin, text.size());
  });
}

// Separates numbers from other text, as a whole or digit by digit.
PreTokenizer digits(bool single) {
  return [single](std::vector<Word> &words) {
    cutEach(words, [&](const std::string &text, auto use) {
      size_t begin = 0;
      bool inNumber = false;
      for (size_t at = 0; at < text.size();) {
        const size_t here = at;
        const bool number = isNumber(nextCharacter(text, at));
        if (number != inNumber || (number && single)) {
          use(begin, here);
          begin = here;
          inNumber = number;
        }
      }
      use(begin, text.size());
    });
  };
}

} // namespace

std::vector<PreTokenizer> readPreTokenizers(const JsonFields &preTokenizer) {
  const std::string type = preTokenizer.string("type");
  if (type == "Sequence") {
    std::vector<PreTokenizer> steps;
    preTokenizer.each("pretokenizers", [&](const JsonFields &part) {
      for (PreTokenizer &step : readPreTokenizers(part))
        steps.push_back(std::move(step));
    });
    return steps;
  }
  if (type == "ByteLevel")
    return {byteLevel(preTokenizer)};
  if (type == "Metaspace")
    return {metaspacePreTokenizer(preTokenizer)};
  if (type == "WhitespaceSplit")
    return {splitAtWhiteSpace};
  if (type == "Whitespace")
    return {splitAtWordEnds};
  if (type == "Digits")
    return {digits(preTokenizer.boolean("individual_digits", false))};
  preTokenizer.at("type").refuse("unknown pre-tokenizer; expected one of Sequence, ByteLevel, Metaspace, "
                                 "WhitespaceSplit, Whitespace, Digits");
}

} // namespace xfc
