// Finds the tokens of a tokenizer.json that are matched as a whole.
#include "tokenizers/AddedTokens.h"
#include "tokenizers/Utf8.h"
#include <algorithm>

namespace xfc {
namespace {

// Returns where the last character of a text begins.
size_t lastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80)
    --at;
  return at;
}

bool wordEnds(std::string_view text) {
  size_t at = text.empty() ? 0 : lastCharacter(text);
  return !text.empty() && isWordCharacter(nextCharacter(text, at));
}

bool wordBegins(std::string_view text) {
  size_t at = 0;
  return !text.empty() && isWordCharacter(nextCharacter(text, at));
}

} // namespace

void AddedTokens::add(AddedToken token) {
  if (token.text.empty())
    return;
  byText[token.text] = token.id;
  tokens[token.id] = std::move(token);
}

void AddedTokens::finish(const Normalize &normalize) {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  std::vector<Trie::Entry> before, after;
  for (auto &[id, token] : tokens) {
    token.decoded = token.normalized ? normalize(token.text) : token.text;
    texts.push_back(token.decoded);
    (token.normalized ? after : before).push_back({texts.back(), id});
  }
  verbatim = Trie(std::move(before));
  inNormalized = Trie(std::move(after));
}

std::vector<AddedTokens::Section> AddedTokens::split(std::string_view line, const Normalize &normalize) const {
  std::vector<Section> found, sections;
  split(line, verbatim, true, found);
  for (Section &section : found)
    if (section.id >= 0)
      sections.push_back(std::move(section));
    else
      split(normalize(std::move(section.text)), inNormalized, section.first, sections);
  return sections;
}

// Matches leftmost tokens first, and the longest of those that begin at the same place.
void AddedTokens::split(std::string_view text, const Trie &trie, bool first, std::vector<Section> &sections) const {
  size_t begin = 0; // of the text that is in no section yet
  auto take = [&](size_t from, size_t to, int32_t id) {
    if (from < to)
      sections.push_back({std::string(text.substr(from, to - from)), id, first && from == 0});
  };
  for (size_t at = 0; at < text.size() && !trie.empty();) {
    size_t end = at;
    int32_t id = -1;
    trie.forEachPrefix(text.substr(at), [&](size_t length, int32_t longest) {
      end = at + length;
      id = longest;
    });
    if (id < 0) {
      ++at;
      continue;
    }
    size_t from = at;
    at = end; // matches do not overlap, even those that are then rejected
    const AddedToken &token = tokens.at(id);
    if (token.singleWord && (wordEnds(text.substr(0, from)) || wordBegins(text.substr(end))))
      continue;
    while (token.stripLeft && from > begin) {
      const size_t last = lastCharacter(text.substr(0, from));
      size_t behind = last;
      if (!isWhiteSpace(nextCharacter(text, behind)))
        break;
      from = last;
    }
    from = std::max(from, begin);
    while (token.stripRight && end < text.size()) {
      size_t behind = end;
      if (!isWhiteSpace(nextCharacter(text, behind)))
        break;
      end = behind;
    }
    take(begin, from, -1);
    take(from, end, id);
    begin = end;
    at = std::max(at, end);
  }
  take(begin, text.size(), -1);
}

const AddedToken *AddedTokens::find(int32_t id) const {
  const auto found = tokens.find(id);
  return found == tokens.end() ? nullptr : &found->second;
}

const AddedToken *AddedTokens::find(std::string_view text) const {
  const auto found = byText.find(text);
  return found == byText.end() ? nullptr : find(found->second);
}

} // namespace xfc
