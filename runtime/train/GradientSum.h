// Sums the gradients of ranks whose devices use host memory.
#pragma once

#include "engine/Engine.h"
#include "plan/Sharding.h"
#include "ranks/Ranks.h"
#include "train/SumOfRanks.h"
#include <vector>

namespace xfc {

// Gathers a block in host memory, of which each rank has its shares, on every rank.
void gatherOnHosts(Ranks &ranks, const Sharding &sharding, const BlockOfElements &block);

// Buckets that have arrived are added between the steps of the backward pass. A round ends when all are added: the next
// one's forward pass overwrites the gradients.
class GradientSum : public SumOfRanks {
public:
  GradientSum(Ranks &ranks, ThreadPool &pool, const Module &module, const Sharding &sharding);

  void begin(int count, bool first) override;
  void before(const ProgramRun &run, int64_t step) override;
  void end(void *gradients) override;
  void finish(void *gradients) override;
  void gather(void *block) override { gatherOnHosts(ranks, sharding, {block, element, 1, elements}); }
  void gatherParts(void *block, int64_t count) override {
    gatherOnHosts(ranks, sharding, {block, sizeof(double), squarePart, count});
  }
  // A share for the sum, and the same for each other rank's gradients.
  int64_t bytes() const override { return sharding.largestShare() * ranks.size() * element; }

private:
  // What is known of a bucket in the present round.
  struct Progress {
    int sending = -1, receiving = -1; // the numbers of its exchanges; -1: none is under way
    bool sent = false, added = false;
  };

  void send(size_t bucket);
  void advance(bool waits); // adds buckets that have arrived, or waits for all, and for what is being sent
  void add(size_t bucket);
  template <typename T> void addShares(size_t bucket);
  template <typename T> void addTerms(T *sum, int64_t size);
  char *receivedFrom(int rank);

  Ranks &ranks;
  ThreadPool &pool;
  const Sharding &sharding;
  const int64_t elements, element; // the number of elements, and the size of each in bytes
  const bool isDouble;
  std::vector<int64_t> places;     // of each bucket in the two below, in elements
  std::vector<char> sum, received; // for this rank's shares: the sum, and the other ranks' gradients, by rank
  std::vector<Progress> progress;  // of each bucket
  char *gradients = nullptr;       // of this rank's batch, once its program runs
  int count = 0;                   // the ranks that have a batch
  bool isFirst = false;            // whether this is the first round of the step
  std::vector<Ranks::Part> sends, receives;
  std::vector<const char *> terms; // of a sum, by rank
};

} // namespace xfc
