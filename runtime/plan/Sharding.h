// How ranks share the sum of their gradients and the optimizer's work: each rank sums, and updates, its own parts of
// the parameter block, and keeps the optimizer's states for those only (ZeRO stage 1: Rajbhandari et al., 2020).
#pragma once

#include "plan/Plan.h"
#include <vector>

namespace xfc {

// Consecutive elements of the parameter block.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  bool operator==(const Range &) const = default;
};

int64_t sizeOf(const std::vector<Range> &ranges);

// The elements of a part: as many as a chunk of the optimizer's kernels works on, so that the partial sums of squares
// are those of a single process.
constexpr int64_t squarePart = 16384;

// The block is cut into parts of squarePart elements. Parts whose gradients are complete at about the same time in the
// backward pass form a bucket, which is exchanged while the rest is computed; each rank owns an equal share of the
// parts of every bucket. The shares do not depend on batches.
class Sharding {
public:
  struct Bucket {
    int64_t step;                           // of loss_and_gradients: before it runs, these gradients are complete
    std::vector<std::vector<Range>> shares; // of each rank
  };

  // The module must have the program loss_and_gradients. A bucket has about `bucketElements` elements, or, in a small
  // model, an eighth of all.
  Sharding(const Module &module, int ranks, int64_t bucketElements = int64_t(1) << 20);

  const std::vector<Bucket> &buckets() const { return inOrder; } // in the order in which they are complete
  // All that a rank owns, ascending.
  const std::vector<Range> &rangesOf(int rank) const { return owned[rank]; }
  int64_t largestShare() const; // in elements

private:
  std::vector<Bucket> inOrder;
  std::vector<std::vector<Range>> owned;
};

} // namespace xfc
