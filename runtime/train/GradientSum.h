// The gradients of all ranks, added.
#pragma once

#include "device/ThreadPool.h"
#include "plan/Plan.h"
#include "ranks/Ranks.h"
#include <vector>

namespace xfc {

// Each rank adds a share of the elements, for all. The batches of a step go to the ranks in turn, and each element is
// added over the batches in their order: the sum is to the bit the one that a process alone makes of all of them, by
// the program `accumulate`.
class GradientSum {
public:
  GradientSum(Ranks &ranks, ThreadPool &pool, const Module &module);
  // Adds the gradients of the next round of batches: one of each of the first `count` ranks. The block holds those of
  // this rank, where it is among them. `first`: of a step.
  void add(void *gradients, int count, bool first);
  // The sum of the step, in place of this rank's gradients.
  void finish(void *gradients);

  // Bytes it holds, but for rounding, for a model of so many bytes of parameters.
  static int64_t bytes(int64_t block, int ranks) { return ranks > 1 ? block : 0; }

private:
  template <typename T> void addShares(const void *gradients, int count, bool first);
  int64_t beginOf(int rank) const; // elements before its share
  int64_t sizeOf(int rank) const { return beginOf(rank + 1) - beginOf(rank); }
  char *receivedFrom(int rank);

  Ranks &ranks;
  ThreadPool &pool;
  const int64_t elements, element; // how many, and bytes of each
  const bool isDouble;
  std::vector<char> sum, received; // of this rank's share: the sum, and what the others have of it, by rank
  std::vector<Ranks::Part> sends, receives;
};

} // namespace xfc
