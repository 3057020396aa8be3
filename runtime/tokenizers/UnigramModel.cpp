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

  void encode(std::string_view word, const SegmentationSampling *sampling, std::vector<int32_t> &ids,
              std::vector<std::string> *unknowns) const override {
    const std::vector<Node> nodes = sampling ? sampled(word, *sampling) : best(word);
    const size_t first = ids.size(), firstUnknown = unknowns ? unknowns->size() : 0;
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
      if (unknowns && ids[at] == unk)
        unknowns->emplace_back(part);
      std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(at), ids.end());
      end = begin;
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
    if (unknowns)
      std::reverse(unknowns->begin() + static_cast<std::ptrdiff_t>(firstUnknown), unknowns->end());
  }

private:
  static constexpr uint32_t none = std::numeric_limits<uint32_t>::max();
  struct Node { // the segmentation that was chosen of the text that ends here
    double score = 0;
    uint32_t begin = none; // where its last subword begins
    int32_t id = -1;
  };

  // Calls use(begin, end, score, id) for each subword of the word, ordered by where they begin.
  template <typename Use> void forEachSubword(std::string_view word, Use use) const {
    for (size_t begin = 0; begin < word.size();) {
      const size_t length = std::min(characterLength(word[begin]), word.size() - begin);
      bool known = false; // whether the single character is a token
      table.prefixes().forEachPrefix(word.substr(begin), [&](size_t bytes, int32_t id) {
        known |= bytes == length;
        use(begin, begin + bytes, scores[static_cast<size_t>(id)], id);
      });
      if (!known) {
        if (unk < 0)
          throw Error("the vocabulary has no token for '" + std::string(word.substr(begin, length)) +
                      "', and none for unknown text");
        use(begin, begin + length, unknownScore, unk);
      }
      begin += length;
    }
  }

  std::vector<Node> best(std::string_view word) const {
    std::vector<Node> nodes(word.size() + 1);
    forEachSubword(word, [&](size_t begin, size_t end, double score, int32_t id) {
      Node &node = nodes[end];
      if (const double sum = nodes[begin].score + score; node.begin == none || sum > node.score)
        node = {sum, static_cast<uint32_t>(begin), id};
    });
    return nodes;
  }

  // Forward filtering, backward sampling: a node's score is the logarithm of the sum over all segmentations of the text
  // before it of exp(alpha * score); from the end, each subword is then drawn by its share of that sum.
  std::vector<Node> sampled(std::string_view word, const SegmentationSampling &sampling) const {
    struct Edge {
      uint32_t begin, next; // `next`: the next edge with the same end
      int32_t id;
      double score; // scaled by alpha
    };
    std::vector<Edge> edges;
    std::vector<uint32_t> firstEdge(word.size() + 1, none); // by the end of the subword
    forEachSubword(word, [&](size_t begin, size_t end, double score, int32_t id) {
      edges.push_back({static_cast<uint32_t>(begin), firstEdge[end], id, sampling.alpha * score});
      firstEdge[end] = static_cast<uint32_t>(edges.size() - 1);
    });
    std::vector<Node> nodes(word.size() + 1);
    auto forEachEdge = [&](size_t end, auto use) {
      for (uint32_t edge = firstEdge[end]; edge != none; edge = edges[edge].next)
        use(edges[edge], nodes[edges[edge].begin].score + edges[edge].score);
    };
    for (size_t end = 1; end <= word.size(); ++end) {
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      forEachEdge(end, [&](const Edge &, double score) { largest = std::max(largest, score); });
      forEachEdge(end, [&](const Edge &, double score) { sum += std::exp(score - largest); });
      nodes[end].score = largest + std::log(sum);
    }
    for (size_t end = word.size(); end > 0; end = nodes[end].begin) {
      double left = sampling.draw();
      bool drawn = false;
      forEachEdge(end, [&](const Edge &edge, double score) {
        if (drawn)
          return;
        nodes[end].begin = edge.begin; // also if rounding leaves a rest after the last edge
        nodes[end].id = edge.id;
        left -= std::exp(score - nodes[end].score);
        drawn = left < 0;
      });
    }
    return nodes;
  }

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
