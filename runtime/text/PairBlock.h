// Pairs of id sequences as training reads them, in blocks: what a corpus is made of, in memory and in a file.
#pragma once

#include "plan/Plan.h"
#include "support/Error.h"
#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace xfc {

// Every block holds so many pairs, the last one of a corpus or of a file fewer.
constexpr int64_t blockPairs = 8192;

// What is known of pairs as a whole. The arrays are indexed by XFC_SOURCE and XFC_TARGET; lengths are counted as the
// model counts them: eos included, a target without its start.
struct CorpusTotals {
  int64_t pairs = 0, tokens[2] = {0, 0}, longest[2] = {0, 0};
  int64_t shortest[2] = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
  int64_t skippedLong = 0, skippedEmpty = 0;     // pairs that are not among them
  int64_t filteredLength = 0, filteredRatio = 0; // and those that a PairFilter left out, which a file does not remember
  // A hash of all ids, which tells whether the data of a resumed run is still the same.
  uint64_t hash = 0xcbf29ce484222325;

  void mix(uint64_t value) { hash = (hash ^ value) * 0x100000001b3; } // FNV-1a, but for the width
  void countLength(int set, int64_t length) {
    tokens[set] += length;
    shortest[set] = std::min(shortest[set], length);
    longest[set] = std::max(longest[set], length);
  }
  // Those of pairs that follow these.
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
  void add(std::span<const int32_t> source, std::span<const int32_t> target) {
    ++pairs;
    countLength(XFC_SOURCE, static_cast<int64_t>(source.size()));
    countLength(XFC_TARGET, static_cast<int64_t>(target.size()) - 1);
    for (std::span<const int32_t> sequence : {source, target}) {
      for (int32_t id : sequence)
        mix(static_cast<uint32_t>(id));
      mix(0xffffffff); // where a sequence ends matters too
    }
  }
};

// A block that is filled pair by pair: the ids of the first source, of the first target with its start and eos, of the
// second source and so on, and the number of ids before the end of each of them.
struct PairBlock {
  std::vector<uint32_t> ends;
  std::vector<int32_t> ids;

  int64_t pairs() const { return static_cast<int64_t>(ends.size() / 2); }
  void add(std::span<const int32_t> source, std::span<const int32_t> target) {
    for (std::span<const int32_t> sequence : {source, target}) {
      ids.insert(ids.end(), sequence.begin(), sequence.end());
      if (ids.size() > std::numeric_limits<uint32_t>::max())
        throw Error("a line of the corpus has too many tokens: " + std::to_string(sequence.size()) +
                    "; give sentences, or a model with a max_length");
      ends.push_back(static_cast<uint32_t>(ids.size()));
    }
  }
  void clear() {
    ends.clear();
    ids.clear();
  }
};

} // namespace xfc
