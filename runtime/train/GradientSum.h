// Sums the gradients of all ranks.
#pragma once

#include "device/ThreadPool.h"
#include "plan/Plan.h"
#include "ranks/Ranks.h"
#include <vector>

namespace xfc {

// Each rank sums its share of the elements for all ranks. The batches of a step are dealt to the ranks in turn, and
// each element is summed over the batches in order: the result is bit-identical to the sum that a single process
// computes over all of them with the program `accumulate`.
class GradientSum {
public:
  GradientSum(Ranks &ranks, ThreadPool &pool, const Module &module);
  // Adds the gradients of the next round of batches: one batch on each of the first `count` ranks. `gradients` holds
  // those of this rank, if it is among them. `first`: whether this is the first round of the step.
  void add(void *gradients, int count, bool first);
  // Replaces this rank's gradients by the sum of the step.
  void finish(void *gradients);

  // The bytes it allocates, up to rounding, for a model whose parameters take `block` bytes.
  static int64_t bytes(int64_t block, int ranks) { return ranks > 1 ? block : 0; }

private:
  template <typename T> void addShares(const void *gradients, int count, bool first);
  int64_t beginOf(int rank) const; // the elements before that rank's share
  int64_t sizeOf(int rank) const { return beginOf(rank + 1) - beginOf(rank); }
  char *receivedFrom(int rank);

  Ranks &ranks;
  ThreadPool &pool;
  const int64_t elements, element; // the number of elements, and the size of each in bytes
  const bool isDouble;
  std::vector<char> sum, received; // for this rank's share: the sum, and the other ranks' gradients, by rank
  std::vector<Ranks::Part> sends, receives;
};

} // namespace xfc
