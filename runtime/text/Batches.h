// The pairs of a corpus in batches of tokens, in an order that depends on the seed and the epoch only.
#pragma once

#include "text/Corpus.h"

namespace xfc {

// Pair numbers of each batch of one epoch. A batch holds at most `batchTokens` source tokens and at most so many target
// tokens (eos counted), or a single pair that is longer. Pairs of like lengths come together: those whose longer side
// has the same number of binary digits, shuffled among themselves. Batches of one epoch are shuffled too.
std::vector<std::vector<int64_t>> epochBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch);

// Bounds on what any batch of any epoch holds: memory is reserved by them.
Counts largestBatch(const Corpus &corpus, int64_t batchTokens);

// Walks through the epochs without end.
class Batches {
public:
  struct Position {
    int64_t epoch = 0, batch = 0; // of the next batch
  };

  Batches(const Corpus &corpus, int64_t batchTokens, uint64_t seed)
      : corpus(corpus), batchTokens(batchTokens), seed(seed) {
    seek({});
  }
  const std::vector<int64_t> &next();
  Position position() const { return at; }
  void seek(Position position);
  int64_t batchesOfEpoch() const { return batches.size(); }

private:
  const Corpus &corpus;
  int64_t batchTokens;
  uint64_t seed;
  Position at;
  std::vector<std::vector<int64_t>> batches; // of the epoch of the batch last given, or next
  int64_t planned = -1;                      // its number
};

} // namespace xfc
