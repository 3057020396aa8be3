// A tokenizer that maps the pieces of a SentencePiece model to other ids.
#include "tokenizers/MappedSentencePiece.h"
#include "support/Error.h"
#include "support/Json.h"
#include "tokenizers/JsonFields.h"
#include "tokenizers/Kinds.h"
#include "tokenizers/Punctuation.h"
#include "tokenizers/ReversedTokenizer.h"
#include "tokenizers/SentencePieceModel.h"
#include "tokenizers/TokenTable.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <sentencepiece_processor.h>

namespace xfc {

namespace {

constexpr std::pair<const char *, int32_t SpecialTokens::*> namedTokens[] = {{"pad", &SpecialTokens::pad},
                                                                             {"unk", &SpecialTokens::unk},
                                                                             {"bos", &SpecialTokens::bos},
                                                                             {"eos", &SpecialTokens::eos}};

// The JSON and the SentencePiece model.
std::pair<std::string_view, std::string_view> partsOf(std::string_view contents) {
  contents.remove_prefix(mappedSentencePieceMagic.size());
  const size_t end = contents.find('\n');
  if (end == std::string_view::npos)
    throw Error("the vocabulary is truncated");
  return {contents.substr(0, end), contents.substr(end + 1)};
}

class MappedTokenizer : public Tokenizer {
public:
  explicit MappedTokenizer(std::string_view contents) {
    const auto [map, pieces] = partsOf(contents);
    readMap(JsonFields::parsed(map));
    model = loadSentencePieceModel(pieces);
  }

  int64_t size() const override { return table.size(); }

  bool canSample() const override { return xfc::canSample(*model); }

  std::vector<int32_t> segment(std::string_view line, const SegmentationSampling *sampling) const override {
    std::vector<int32_t> ids;
    eachToken(line, sampling, [&](int32_t id, std::string_view) { ids.push_back(id); });
    return ids;
  }

  std::vector<std::string> unknowns(std::string_view line) const override {
    std::vector<std::string> texts;
    eachToken(line, nullptr, [&](int32_t id, std::string_view text) {
      if (id == tokens.unk)
        texts.emplace_back(text);
    });
    return texts;
  }

  std::string join(std::span<const int32_t> ids, std::span<const std::string> unknowns) const override {
    std::vector<std::string> pieces;
    for (const int32_t id : ids) {
      const bool given = id == tokens.unk && !unknowns.empty();
      if (given)
        pieces.push_back(pieces.empty() ? withoutBlank(unknowns.front()) : unknowns.front());
      else if (id >= 0 && id < size() && !isSpecial[static_cast<size_t>(id)])
        pieces.emplace_back(table.text(id));
      unknowns = unknowns.subspan(given);
    }
    std::string joined;
    model->Decode(pieces, &joined).IgnoreError();
    const std::string text = withBlanks(joined);
    return strip ? stripped(text) : text;
  }

  std::string piece(int32_t id) const override { return std::string(table.text(id)); }
  int32_t idOf(std::string_view piece) const override {
    const int32_t id = table.find(piece);
    return id >= 0 ? id : tokens.unk;
  }
  SpecialTokens special() const override { return tokens; }
  const Frame *frame() const override { return &around; }

private:
  // Calls use(id, text) for each token of a line.
  template <typename Use>
  void eachToken(std::string_view line, const SegmentationSampling *sampling, const Use &use) const {
    std::string valid = validUtf8(line);
    if (!punctuation.empty())
      valid = normalizePunctuation(valid, punctuation);
    const std::string_view text = valid;
    size_t begin = 0; // of the text that is in no special token yet
    for (size_t at = 0; at < text.size();) {
      size_t longest = 0;
      int32_t id = -1;
      whole.forEachPrefix(text.substr(at), [&](size_t length, int32_t found) {
        longest = length;
        id = found;
      });
      if (longest == 0) {
        ++at;
        continue;
      }
      eachOfSection(text.substr(begin, at - begin), sampling, use);
      use(id, text.substr(at, longest));
      begin = at += longest;
    }
    eachOfSection(text.substr(begin), sampling, use);
  }

  template <typename Use>
  void eachOfSection(std::string_view text, const SegmentationSampling *sampling, const Use &use) const {
    if (text.empty())
      return;
    if (tags && text.starts_with(">>"))
      if (const size_t end = text.find("<<"); end != std::string_view::npos) {
        use(idOf(text.substr(0, end + 2)), text.substr(0, end + 2));
        text.remove_prefix(end + 2);
      }
    for (const std::string &piece : segmentText<std::string>(*model, text, sampling))
      use(idOf(piece), piece);
  }

  void readMap(const JsonFields &map) {
    int32_t next = 0;
    map.each("tokens", [&](const JsonFields &token) { table.add(next++, token.string()); });
    table.finish();
    auto id = [&](const JsonFields &value) { return static_cast<int32_t>(value.integer(0, table.size() - 1)); };
    auto list = [&](const char *key, auto use) {
      if (map.has(key))
        map.each(key, [&](const JsonFields &value) { use(id(value)); });
    };
    for (auto [key, token] : namedTokens)
      if (map.has(key))
        tokens.*token = id(map.at(key));
    if (tokens.unk < 0)
      throw Error("unk: missing; expected the id of unknown pieces");
    isSpecial.resize(static_cast<size_t>(table.size()));
    std::vector<Trie::Entry> entries;
    list("special", [&](int32_t found) {
      isSpecial[static_cast<size_t>(found)] = true;
      entries.push_back({table.text(found), found});
    });
    whole = Trie(std::move(entries));
    list("prefix", [&](int32_t found) { around.prefix.push_back(found); });
    list("suffix", [&](int32_t found) { around.suffix.push_back(found); });
    tags = map.has("tags") && map.at("tags").boolean();
    if (map.has("strip"))
      strip = map.at("strip").boolean();
    if (map.has("punctuation"))
      punctuation = map.string("punctuation");
  }

  static std::string stripped(const std::string &text) {
    size_t begin = text.size(), end = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t first = at;
      if (!isSpace(nextCharacter(text, at))) {
        begin = std::min(begin, first);
        end = at;
      }
    }
    return begin < end ? text.substr(begin, end - begin) : "";
  }

  TokenTable table;
  SpecialTokens tokens;
  std::vector<bool> isSpecial; // by id
  Trie whole;                  // the special tokens
  bool tags = false, strip = true;
  std::string punctuation;
  Frame around;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> model;
};

} // namespace

std::string MappedSentencePiece::written() const {
  nlohmann::ordered_json map;
  for (auto [key, token] : namedTokens)
    if (ids.*token >= 0)
      map[key] = ids.*token;
  if (tags)
    map["tags"] = true;
  if (!strip)
    map["strip"] = false;
  if (!punctuation.empty())
    map["punctuation"] = punctuation;
  map["prefix"] = frame.prefix;
  map["suffix"] = frame.suffix;
  map["special"] = special;
  map["tokens"] = tokens;
  return std::string(mappedSentencePieceMagic) + map.dump() + "\n" + model;
}

std::string withPunctuation(std::string_view contents, const std::string &language) {
  if (isReversed(contents))
    return reversedVocabulary(withPunctuation(reversedVocabulary(contents), language));
  if (!contents.starts_with(mappedSentencePieceMagic))
    throw Error(
        "punctuation is normalized only for SentencePiece models whose pieces have other ids, as those of Marian "
        "and OPUS-MT; this tokenizer has its own normalization");
  const auto [json, pieces] = partsOf(contents);
  nlohmann::ordered_json map = parseOrderedJson(json, "", mostLargeBytes);
  map["punctuation"] = language;
  return std::string(mappedSentencePieceMagic) + map.dump() + "\n" + std::string(pieces);
}

std::string punctuationOf(std::string_view contents) {
  if (!contents.starts_with(mappedSentencePieceMagic))
    return "";
  const JsonFields map = JsonFields::parsed(partsOf(contents).first);
  return map.has("punctuation") ? map.string("punctuation") : "";
}

bool stripsLines(std::string_view contents) {
  if (!contents.starts_with(mappedSentencePieceMagic))
    return false;
  const JsonFields map = JsonFields::parsed(partsOf(contents).first);
  return !map.has("strip") || map.at("strip").boolean();
}

std::unique_ptr<Tokenizer> mappedSentencePiece(std::string_view contents) {
  return std::make_unique<MappedTokenizer>(contents);
}

} // namespace xfc
