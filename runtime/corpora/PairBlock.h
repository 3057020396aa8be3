// Blocks of pairs of id sequences as training reads them: the units of a corpus, both in memory and in a file.
#pragma once

#include "plan/Plan.h"
#include "support/Error.h"
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// Every block holds this many pairs; the last one of a corpus or a file may hold fewer.
constexpr int64_t blockPairs = 8192;

// A corpus may have weights, by which the losses of labels are multiplied: none (they count as 1), one per sentence
// pair, or one per label, that is, for each token after start and for eos.
enum class Weighting : uint32_t { None, Sentence, Word };
using Weights = std::span<const float>;

// A token and its probability under a teacher. A corpus may have the same number of them for each label, most probable
// first: the top of the teacher's distribution after the tokens before the label.
struct TokenProbability {
  int32_t token;
  float probability;
};
using Distribution = std::span<const TokenProbability>; // of a label, or of all labels of a target
constexpr int64_t mostProbableTokens = 64;              // at most so many for each label

// A link of a word alignment: the position of a token in a source, and that of a label in its target. A corpus may have
// links for each pair, in ascending order of labels, then of sources, without repetition.
struct Link {
  int32_t source, label;
  bool operator==(const Link &) const = default;
};
using Links = std::span<const Link>;

// The lines that a pair was read from, and how many ids of each of its sequences precede those of the line, the start
// of a target included; indexed by XFC_SOURCE and XFC_TARGET. A corpus may have them, to be segmented anew.
struct PairLines {
  std::string_view lines[2];
  uint32_t prefixes[2] = {0, 0};
};

// Statistics of a set of pairs. The arrays are indexed by XFC_SOURCE and XFC_TARGET; lengths are counted as the model
// counts them: with eos, and targets without start.
struct CorpusTotals {
  int64_t pairs = 0, tokens[2] = {0, 0}, longest[2] = {0, 0};
  int64_t shortest[2] = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
  int64_t skippedLong = 0, skippedEmpty = 0;     // pairs left out
  int64_t filteredLength = 0, filteredRatio = 0; // pairs that a PairFilter left out; not stored in files
  // A hash of all ids, of weights other than 1 and of links, which tells whether a resumed run still has the same data.
  uint64_t hash = 0xcbf29ce484222325;

  void mix(uint64_t value) { hash = (hash ^ value) * 0x100000001b3; } // FNV-1a, except that it mixes 64 bits at a time
  void countLength(int set, int64_t length) {
    tokens[set] += length;
    shortest[set] = std::min(shortest[set], length);
    longest[set] = std::max(longest[set], length);
  }
  // Appends the statistics of pairs that follow these.
  void append(const CorpusTotals &more) {
    pairs += more.pairs;
    skippedLong += more.skippedLong;
    skippedEmpty += more.skippedEmpty;
    filteredLength += more.filteredLength;
    filteredRatio += more.filteredRatio;
    for (int set : {XFC_SOURCE, XFC_TARGET}) {
      tokens[set] += more.tokens[set];
      shortest[set] = std::min(shortest[set], more.shortest[set]);
      longest[set] = std::max(longest[set], more.longest[set]);
    }
    mix(more.hash);
  }
  // `target` has its start and eos.
  void add(std::span<const int32_t> source, std::span<const int32_t> target, Weights weights = {}, Links links = {}) {
    ++pairs;
    countLength(XFC_SOURCE, static_cast<int64_t>(source.size()));
    countLength(XFC_TARGET, static_cast<int64_t>(target.size()) - 1);
    for (std::span<const int32_t> sequence : {source, target}) {
      for (int32_t id : sequence)
        mix(static_cast<uint32_t>(id));
      mix(0xffffffff); // the hash depends on where a sequence ends
    }
    for (size_t i = 0; i < weights.size(); ++i)
      if (weights[i] != 1) // with weights of 1, data is the same as without weights
        mix(static_cast<uint64_t>(weights.size() == 1 ? 0 : i + 1) << 32 | std::bit_cast<uint32_t>(weights[i]));
    for (const Link &link : links)
      mix(static_cast<uint64_t>(link.label) << 32 | static_cast<uint32_t>(link.source));
  }
};

// A block that is filled pair by pair: `ids` are those of the first source, the first target with its start and eos,
// the second source and so on; `ends` is the number of ids up to the end of each sequence. `weights` holds none, one
// for each pair, or one for each id, of which those of labels count; all pairs of a block have the same kind. Unless it
// is empty, `distributions` holds those of the first pair's labels, then of the second's and so on, and `labelEnds` the
// number of labels up to the end of each pair. `links` holds those of all pairs, and `linkEnds` their number up to the
// end of each pair. Unless it is empty, `text` holds the first source's line, the first target's and so on, `lineEnds`
// the number of bytes up to the end of each, and `prefixes` the number of ids before those of each.
struct PairBlock {
  std::vector<uint32_t> ends;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  std::vector<uint32_t> labelEnds;
  std::vector<TokenProbability> distributions;
  std::vector<uint32_t> linkEnds;
  std::vector<Link> links;
  std::vector<uint32_t> prefixes, lineEnds;
  std::vector<char> text;

  int64_t pairs() const { return static_cast<int64_t>(ends.size() / 2); }
  Weighting weighting() const {
    return weights.empty() ? Weighting::None : weights.size() < ids.size() ? Weighting::Sentence : Weighting::Word;
  }
  void add(std::span<const int32_t> source, std::span<const int32_t> target, Weights ofPair = {},
           Distribution ofLabels = {}, Links aligned = {}, const PairLines *readFrom = nullptr) {
    for (std::span<const int32_t> sequence : {source, target}) {
      ids.insert(ids.end(), sequence.begin(), sequence.end());
      if (ids.size() > std::numeric_limits<uint32_t>::max())
        throw Error("a line of the corpus has too many tokens: " + std::to_string(sequence.size()) +
                    "; give sentences, or a model with a max_length");
      ends.push_back(static_cast<uint32_t>(ids.size()));
    }
    if (ofPair.size() > 1) // one for each label: the last ids of the target
      weights.resize(ids.size() - ofPair.size(), 1);
    weights.insert(weights.end(), ofPair.begin(), ofPair.end());
    if (!ofLabels.empty())
      labelEnds.push_back((labelEnds.empty() ? 0 : labelEnds.back()) + static_cast<uint32_t>(target.size()) - 1);
    distributions.insert(distributions.end(), ofLabels.begin(), ofLabels.end());
    links.insert(links.end(), aligned.begin(), aligned.end());
    linkEnds.push_back(static_cast<uint32_t>(links.size()));
    if (!readFrom)
      return;
    for (const int side : {XFC_SOURCE, XFC_TARGET}) {
      text.insert(text.end(), readFrom->lines[side].begin(), readFrom->lines[side].end());
      if (text.size() > std::numeric_limits<uint32_t>::max() - sizeof(uint32_t))
        throw Error("the corpus has " + std::to_string(blockPairs) +
                    " pairs of more than 4 GB of text; give sentences");
      lineEnds.push_back(static_cast<uint32_t>(text.size()));
      prefixes.push_back(readFrom->prefixes[side]);
    }
  }
  void clear() {
    ends.clear();
    ids.clear();
    weights.clear();
    labelEnds.clear();
    distributions.clear();
    linkEnds.clear();
    links.clear();
    prefixes.clear();
    lineEnds.clear();
    text.clear();
  }
};

} // namespace xfc
