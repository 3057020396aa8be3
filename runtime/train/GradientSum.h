// Sums the gradients of all ranks.
#pragma once

#include "engine/Engine.h"
#include "plan/Sharding.h"
#include "ranks/Ranks.h"
#include <vector>

namespace xfc {

// Each rank sums its share of the elements for all ranks. The batches of a step are dealt to the ranks in rounds, and
// each element is summed over the batches in order: the result is bit-identical to the sum that a single process
// computes over all of them with the program `accumulate`.
//
// Gradients are exchanged while they are computed: this object observes the program loss_and_gradients, and sends each
// bucket once it is complete. What has not arrived at the end of a round's program is added while the next one's
// forward pass runs.
class GradientSum : public StepObserver {
public:
  GradientSum(Ranks &ranks, ThreadPool &pool, const Module &module, const Sharding &sharding);

  // Begins the next round: a batch on each of the first `count` ranks, whose gradients will be in `gradients`. `first`:
  // whether this is the first round of the step. Then, a rank with a batch runs loss_and_gradients with this observer.
  void begin(void *gradients, int count, bool first);
  void before(const ProgramRun &run, int64_t step) override;
  // Sends the rest of this round's gradients. They must not be written to before the next round's program, or finish().
  void end();
  // Puts the sum of the step into this rank's share of the gradients; the others' shares are those of a batch.
  void finish(void *gradients);

  // Gathers a block laid out like the parameters, of which each rank has its shares, on every rank.
  void gather(void *block) { exchangeShares(static_cast<char *>(block), element, 1, elements); }
  // Gathers a block with an f64 for each of `count` parts of the parameter block.
  void gatherParts(void *block, int64_t count) {
    exchangeShares(static_cast<char *>(block), sizeof(double), squarePart, count);
  }

  // The most elements that any rank allocates room for.
  static int64_t elementsHeld(const Sharding &sharding, int ranks) { return sharding.largestShare() * ranks; }

private:
  struct Round {
    char *gradients = nullptr;
    int count = 0;
    bool first = false;
  };
  // What is known of a bucket in the present round.
  struct Progress {
    int sending = -1, receiving = -1; // the numbers of its exchanges; -1: none is under way
    bool sent = false, added = false;
  };

  bool hasBatch(const Round &round) const { return ranks.rank() < round.count; }
  void start(); // the announced round
  void send(size_t bucket);
  void advance(bool waits); // adds buckets that have arrived, or waits for all, and for what is being sent
  void add(size_t bucket);
  template <typename T> void addShares(size_t bucket);
  template <typename T> void addTerms(T *sum, int64_t size);
  char *receivedFrom(int rank);
  void exchangeShares(char *block, int64_t bytes, int64_t unit, int64_t count);

  Ranks &ranks;
  ThreadPool &pool;
  const Sharding &sharding;
  const int64_t elements, element; // the number of elements, and the size of each in bytes
  const bool isDouble;
  std::vector<int64_t> places;     // of each bucket in the two below, in elements
  std::vector<char> sum, received; // for this rank's shares: the sum, and the other ranks' gradients, by rank
  std::vector<Progress> progress;  // of each bucket
  Round round, announced;
  bool underWay = false, hasAnnounced = false;
  std::vector<Ranks::Part> sends, receives;
  std::vector<const char *> terms; // of a sum, by rank
};

} // namespace xfc
