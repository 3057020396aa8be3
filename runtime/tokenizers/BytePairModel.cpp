// Byte pair encoding (Sennrich et al. 2016): splits a word into characters and merges pairs, the pair of lowest rank
// first.
#include "tokenizers/SubwordModel.h"
#include "tokenizers/Utf8.h"
#include <cstdio>
#include <queue>
#include <unordered_map>

namespace xfc {

bool SubwordModel::appendBytes(std::string_view text, std::vector<int32_t> &ids) const {
  const size_t before = ids.size();
  for (const char byte : text) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    ids.push_back(table.find(name));
    if (ids.back() < 0) {
      ids.resize(before);
      return false;
    }
  }
  return true;
}

namespace {

class BytePairModel : public SubwordModel {
public:
  explicit BytePairModel(const JsonFields &model) {
    for (const char *affix : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (model.has(affix) && !model.string(affix).empty())
        model.at(affix).refuse("not supported; expected none");
    if (model.has("dropout") && model.at("dropout").number() != 0)
      model.at("dropout").refuse("not supported; expected none");
    model.at("vocab").members([&](const std::string &text, const JsonFields &id) {
      table.add(static_cast<int32_t>(id.integer(0, mostIds)), text);
    });
    table.finish();
    fuseUnknown = model.boolean("fuse_unk", false);
    byteFallback = model.boolean("byte_fallback", false);
    wholeWords = model.boolean("ignore_merges", false);
    if (model.has("unk_token")) {
      unk = table.find(model.string("unk_token"));
      if (unk < 0)
        model.at("unk_token").refuse("not in vocab");
    }
    int32_t rank = 0;
    const JsonFields list = model.at("merges");
    merges.reserve(static_cast<size_t>(list.elements()));
    list.each([&](const JsonFields &merge) { addMerge(merge, rank++); });
  }

  int32_t unknown() const override { return unk; }

  void encode(std::string_view word, const SegmentationSampling *sampling, std::vector<int32_t> &ids,
              std::vector<std::string> *unknowns) const override {
    if (wholeWords && !sampling)
      if (const int32_t id = table.find(word); id >= 0) {
        ids.push_back(id);
        return;
      }
    std::vector<int32_t> parts = characters(word, unknowns);
    if (parts.size() > 1)
      merge(parts, sampling);
    ids.insert(ids.end(), parts.begin(), parts.end());
  }

private:
  static constexpr int64_t mostIds = INT32_MAX; // the table has its own limit
  struct Merge {
    int32_t rank, id;
  };
  static uint64_t pairOf(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }

  void addMerge(const JsonFields &merge, int32_t rank) {
    std::string left, right;
    if (merge.isString()) {
      const std::string both = merge.string();
      const size_t blank = both.find(' ');
      if (blank == std::string::npos || both.find(' ', blank + 1) != std::string::npos)
        merge.refuse("expected two tokens with a blank between them");
      left = both.substr(0, blank);
      right = both.substr(blank + 1);
    } else {
      if (merge.elements() != 2)
        merge.refuse("expected two tokens");
      left = merge.element(0).string();
      right = merge.element(1).string();
    }
    const int32_t first = table.find(left), second = table.find(right), whole = table.find(left + right);
    for (const auto &[id, token] : {std::pair{first, left}, {second, right}, {whole, left + right}})
      if (id < 0)
        merge.refuse(token + " is not in vocab");
    merges[pairOf(first, second)] = {rank, whole};
  }

  std::vector<int32_t> characters(std::string_view word, std::vector<std::string> *unknowns) const {
    std::vector<int32_t> parts;
    bool pending = false; // an unknown token that the next unknown character may join
    auto flush = [&] {
      if (pending)
        parts.push_back(unk);
      pending = false;
    };
    for (size_t at = 0; at < word.size();) {
      const size_t length = std::min(characterLength(word[at]), word.size() - at);
      const std::string_view character = word.substr(at, length);
      at += length;
      if (const int32_t id = table.find(character); id >= 0) {
        flush();
        parts.push_back(id);
      } else if (byteFallback && appendBytes(character, parts)) {
        continue;
      } else if (unk >= 0) {
        if (!fuseUnknown)
          flush();
        if (unknowns && !pending)
          unknowns->emplace_back();
        if (unknowns)
          unknowns->back() += character;
        pending = true;
      }
    }
    flush();
    return parts;
  }

  // A queue holds the pairs that can be merged, ordered by rank and then from left to right. The parts form a linked
  // list; entries whose pair has changed meanwhile are skipped. Sampling passes over entries at random; they get
  // another chance at the next merge.
  void merge(std::vector<int32_t> &parts, const SegmentationSampling *sampling) const {
    struct Entry {
      int32_t rank;
      uint32_t at;
      int32_t id;
      bool operator<(const Entry &other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
    };
    const auto count = static_cast<uint32_t>(parts.size());
    std::vector<uint32_t> next(count), previous(count);
    std::priority_queue<Entry> queue;
    auto consider = [&](uint32_t at) {
      if (next[at] == count)
        return;
      if (const auto found = merges.find(pairOf(parts[at], parts[next[at]])); found != merges.end())
        queue.push({found->second.rank, at, found->second.id});
    };
    for (uint32_t i = 0; i < count; ++i) {
      next[i] = i + 1;
      previous[i] = i == 0 ? count : i - 1;
    }
    for (uint32_t i = 0; i < count; ++i)
      consider(i);
    constexpr int32_t gone = -1;
    std::vector<Entry> passed;
    while (!queue.empty()) {
      const Entry entry = queue.top();
      queue.pop();
      if (sampling && sampling->draw() < sampling->alpha) {
        passed.push_back(entry);
        continue;
      }
      for (const Entry &again : passed)
        queue.push(again);
      passed.clear();
      const uint32_t right = parts[entry.at] == gone ? count : next[entry.at];
      if (right == count)
        continue;
      const auto found = merges.find(pairOf(parts[entry.at], parts[right]));
      if (found == merges.end() || found->second.id != entry.id)
        continue;
      parts[entry.at] = entry.id;
      parts[right] = gone;
      next[entry.at] = next[right];
      if (next[right] != count)
        previous[next[right]] = entry.at;
      if (previous[entry.at] != count)
        consider(previous[entry.at]);
      consider(entry.at);
    }
    std::erase(parts, gone);
  }

  std::unordered_map<uint64_t, Merge> merges;
  int32_t unk = -1;
  bool fuseUnknown, byteFallback, wholeWords;
};

} // namespace

std::unique_ptr<SubwordModel> readBytePairModel(const JsonFields &model) {
  return std::make_unique<BytePairModel>(model);
}

} // namespace xfc
