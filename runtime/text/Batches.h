// The pairs of a corpus in batches of tokens, in an order that depends on the seed, the epoch and the data only.
#pragma once

#include "text/Corpus.h"
#include "text/Mixture.h"

namespace xfc {

// An epoch is walked in pools: a corpus of any size is put in order in the memory of one. An epoch of at most
// poolBlocks blocks (524,288 pairs) is one pool, and its order is over all of it. Larger ones are cut into blocks of
// blockPairs pairs as they follow each other; in each epoch the blocks are shuffled and dealt to pools of like sizes.
// Of several corpora that are mixed each is cut into blocks of its own, and the epoch has of each what is its turn.
constexpr int64_t poolBlocks = 64;
int64_t poolsOf(const Corpus &corpus, const Mixture &mixture = {});

// Pair numbers of each batch of a pool. A batch holds at most `batchTokens` source tokens and at most so many target
// tokens (eos counted), or a single pair that is longer. Pairs of like lengths come together: those whose longer side
// has the same number of binary digits, shuffled among themselves. Batches of a pool are shuffled too. What the corpus
// has in files is checked, and its memory is that of this pool afterwards. Throws Error as Corpus::check does.
std::vector<std::vector<int64_t>> poolBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                              int64_t pool, const Mixture &mixture = {});
// Those of all pools of an epoch, one after the other.
std::vector<std::vector<int64_t>> epochBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                               const Mixture &mixture = {});

// Bounds on what any batch of any epoch holds: memory is reserved by them.
Counts largestBatch(const Corpus &corpus, int64_t batchTokens, const Mixture &mixture = {});

// Walks through the epochs without end.
class Batches {
public:
  struct Position {
    int64_t epoch = 0, batch = 0; // of the next batch; its number in its pool
    int64_t pool = 0;
  };

  Batches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, Mixture mixture = {})
      : corpus(corpus), mixture(std::move(mixture)), batchTokens(batchTokens), seed(seed),
        pools(poolsOf(corpus, this->mixture)) {
    seek({});
  }
  const std::vector<int64_t> &next();
  Position position() const { return at; }
  // False where an epoch has no such position.
  bool seek(Position position);
  int64_t poolsOfEpoch() const { return pools; }
  int64_t left() const { return batchesOfPool() - at.batch; } // of the present pool
  // Of a position in the present pool: whether nothing of its epoch is left, and how much of it was given.
  bool endsEpoch(Position position) const { return position.pool == pools - 1 && position.batch >= batchesOfPool(); }
  double fractionOfEpoch(Position position) const;
  // Of the present one. Plans all its pools, where it has several, and reads all that lies in files.
  int64_t batchesOfEpoch() const;

private:
  int64_t batchesOfPool() const { return static_cast<int64_t>(batches.size()); }
  const Corpus &corpus;
  Mixture mixture;
  int64_t batchTokens;
  uint64_t seed;
  int64_t pools;
  Position at;
  std::vector<std::vector<int64_t>> batches; // of the pool of the batch last given, or next
  int64_t plannedEpoch = -1, plannedPool = -1;
};

} // namespace xfc
