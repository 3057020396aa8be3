// The unigram language model of subwords (Kudo 2018): splits a word into the subwords whose scores have the largest
// sum.
#include "tokenizers/SubwordModel.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace xfc {
namespace {

class UnigramModel : public SubwordModel {
public:
  explicit UnigramModel(const JsonFields &model) {
    model.each("vocab", [&](const JsonFields &entry) {
      const double score = entry.element(1).number();
      if (!std::isfinite(score))
        entry.refuse("expected a finite score");
      table.add(static_cast<int32_t>(scores.size()), entry.element(0).string());
      scores.push_back(score);
    });
    if (scores.empty())
      model.at("vocab").refuse("expected tokens");
    table.finish();
    if (model.has("unk_id"))
      unk = static_cast<int32_t>(model.at("unk_id").integer(0, table.size() - 1));
    byteFallback = model.boolean("byte_fallback", false);
    constexpr double penalty = 10; // SentencePiece's value, below the worst token
    unknownScore = *std::min_element(scores.begin(), scores.end()) - penalty;
  }

  int32_t unknown() const override { return unk; }

  void encode(std::string_view word, std::vector<int32_t> &ids) const override {
    struct Node { // the best segmentation that ends here
      double score = 0;
      uint32_t begin = none; // where its last subword begins
      int32_t id = -1;
    };
    std::vector<Node> nodes(word.size() + 1);
    auto reach = [&](size_t begin, size_t end, double score, int32_t id) {
      Node &node = nodes[end];
      if (node.begin == none || score > node.score)
        node = {score, static_cast<uint32_t>(begin), id};
    };
    for (size_t begin = 0; begin < word.size();) {
      const double before = nodes[begin].score;
      const size_t length = std::min(characterLength(word[begin]), word.size() - begin);
      bool known = false; // whether the single character is a token
      table.prefixes().forEachPrefix(word.substr(begin), [&](size_t bytes, int32_t id) {
        known |= bytes == length;
        reach(begin, begin + bytes, before + scores[static_cast<size_t>(id)], id);
      });
      if (!known) {
        if (unk < 0)
          throw Error("the vocabulary has no token for '" + std::string(word.substr(begin, length)) +
                      "', and none for unknown text");
        reach(begin, begin + length, before + unknownScore, unk);
      }
      begin += length;
    }
    const size_t first = ids.size();
    for (size_t end = word.size(); end > 0;) { // backtrack from the last subword to the first
      size_t begin = nodes[end].begin;
      if (nodes[end].id == unk) // merge consecutive unknown ones
        while (begin > 0 && nodes[begin].id == unk)
          begin = nodes[begin].begin;
      const std::string_view part = word.substr(begin, end - begin);
      const size_t at = ids.size();
      if (const int32_t id = table.find(part); id >= 0)
        ids.push_back(id);
      else if (!byteFallback || !appendBytes(part, ids))
        ids.push_back(unk);
      std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(at), ids.end());
      end = begin;
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
  }

private:
  static constexpr uint32_t none = std::numeric_limits<uint32_t>::max();
  std::vector<double> scores; // by id
  double unknownScore = 0;
  int32_t unk = -1;
  bool byteFallback;
};

} // namespace

std::unique_ptr<SubwordModel> readUnigramModel(const JsonFields &model) {
  return std::make_unique<UnigramModel>(model);
}

} // namespace xfc
