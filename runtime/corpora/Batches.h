// Groups the pairs of a corpus into batches by token count, in an order that depends only on the seed, the epoch and
// the data.
#pragma once

#include "corpora/Corpus.h"
#include "corpora/Mixture.h"
#include <atomic>
#include <thread>

namespace xfc {

// An epoch is processed in pools, so that ordering a corpus of any size takes the memory of one pool, or two. An epoch
// of at most poolBlocks blocks (524,288 pairs) is a single pool, shuffled as a whole. Larger ones are cut into blocks
// of blockPairs consecutive pairs; in each epoch the blocks are shuffled and distributed to pools of similar sizes.
// Several corpora that are mixed are each cut into blocks of their own, and an epoch takes from each corpus the pairs
// whose turn it is.
constexpr int64_t poolBlocks = 64;
int64_t poolsOf(const Corpus &corpus, const Mixture &mixture = {});

// The pair numbers of each batch of a pool. A batch holds at most `batchTokens` source tokens and as many target tokens
// (eos included), or a single pair that is longer. Pairs of similar lengths are batched together: those whose longer
// side has the same number of binary digits, shuffled among themselves. The batches of a pool are shuffled too. Reads
// and checks the parts of the corpus that lie in files; afterwards only this pool's pages are in memory. Throws Error
// as Corpus::check does. The lengths are those of the corpus itself, even if it is sampled.
std::vector<std::vector<int64_t>> poolBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                              int64_t pool, const Mixture &mixture = {});
// The batches of all pools of an epoch, in order.
std::vector<std::vector<int64_t>> epochBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                               const Mixture &mixture = {});

// Upper bounds on the size of any batch of any epoch, by which memory is reserved.
Counts largestBatch(const Corpus &corpus, int64_t batchTokens, const Mixture &mixture = {});

// Pairs that are processed together. Equal batches have the same pairs of the same corpus.
struct PairsOfCorpus {
  std::shared_ptr<const Corpus> corpus;
  std::vector<int64_t> pairs;
  bool operator==(const PairsOfCorpus &) const = default;
};
// The caller keeps the corpus alive.
PairsOfCorpus pairsOf(const Corpus &corpus, std::vector<int64_t> pairs);

// Iterates over the epochs endlessly. A pool is planned when something of it is first asked for, or before, on a thread
// of its own, by planAhead(); its batches are the same either way. If the corpus is sampled, each pool is sampled then,
// and the batches are of what was sampled.
class Batches {
public:
  struct Position {
    int64_t epoch = 0, batch = 0; // of the next batch, numbered within its pool
    int64_t pool = 0;
  };

  Batches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, Mixture mixture = {});
  ~Batches(); // ends the thread of planAhead()
  Batches(const Batches &) = delete;
  const PairsOfCorpus &next();
  // Once half of the current pool's batches were taken, begins to plan the next pool on a thread of its own, unless it
  // was begun before. The caller goes on; when it needs that pool, it does what is left to do on all of its threads,
  // and throws what the thread met. Two pools are then in memory.
  void planAhead();
  Position position() const { return at; }
  // Returns false if an epoch has no such position.
  bool seek(Position position);
  int64_t poolsOfEpoch() const { return pools; }
  int64_t left() const { return batchesOfPool() - at.batch; } // in the current pool
  // For a position in the current pool: whether it is at the end of its epoch, and what fraction of the epoch precedes
  // it.
  bool endsEpoch(Position position) const { return position.pool == pools - 1 && position.batch >= batchesOfPool(); }
  double fractionOfEpoch(Position position) const;
  // In the current epoch; if the corpus is sampled, an estimate, from its best segmentations. If the epoch has several
  // pools, this plans all of them, and reads all parts that lie in files.
  int64_t batchesOfEpoch() const;
  // A hash of the pairs that the current pool draws from, as they were sampled.
  uint64_t hashOfPool() const { return planned().empty() ? 0 : planned().front().corpus->totals().hash; }

private:
  class Plan;
  int64_t batchesOfPool() const { return static_cast<int64_t>(planned().size()); }
  const std::vector<PairsOfCorpus> &planned() const; // the current pool
  Position nextPool() const;
  void stopPlanning() const;
  const Corpus &corpus;
  Mixture mixture;
  int64_t batchTokens;
  uint64_t seed;
  int64_t pools;
  Position at;
  mutable std::unique_ptr<Plan> current, ahead; // the pool that was planned last, and the one after it
  mutable std::atomic<bool> failed = false;     // to plan ahead
  mutable std::jthread planner;                 // uses the members above
};

} // namespace xfc
