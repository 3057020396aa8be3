// The parts of xfc.distance_bias that are known at compile time: the distances of each bucket, and the slopes.
#pragma once

#include "Dialect/XFC.h"
#include <cmath>

namespace xfc {

// Consecutive distances in one direction that fall into the same bucket.
struct DistanceRange {
  int64_t first, end;
  bool after; // whether keys come after the query
  int64_t bucket;
};

// The ranges of the distances 0 .. distances - 1 in ascending order, first for keys before the query, then for keys
// after it.
template <typename Op> llvm::SmallVector<DistanceRange> distanceRanges(Op op, int64_t buckets, int64_t distances) {
  const bool both = op.getBothDirections();
  const int64_t each = both ? buckets / 2 : buckets, exact = each / 2;
  // Computed in f32, like the programs that trained such tables.
  const float width = static_cast<float>(std::log(double(op.getMaxDistance()) / double(exact)));
  auto bucketOf = [&](int64_t t) {
    if (t < exact)
      return t;
    const float share = std::log(float(t) / float(exact)) / width;
    return std::min(each - 1, exact + static_cast<int64_t>(share * float(each - exact)));
  };
  llvm::SmallVector<DistanceRange> ranges;
  for (bool after : {false, true})
    for (int64_t t = 0; t < distances; ++t) {
      const int64_t bucket = !after ? bucketOf(t) : both && t > 0 ? each + bucketOf(t) : 0;
      if (ranges.empty() || ranges.back().after != after || ranges.back().bucket != bucket)
        ranges.push_back({t, t, after, bucket});
      ranges.back().end = t + 1;
    }
  return ranges;
}

// The slope of a head without a table: how much its bias decreases with each position.
inline double slopeOfHead(int64_t head, int64_t heads) {
  const int64_t power = int64_t(1) << static_cast<int>(std::log2(heads));
  return head < power ? std::pow(2.0, -8.0 * (head + 1) / power)
                      : std::pow(2.0, -8.0 * (2 * (head - power) + 1) / (2 * power));
}

} // namespace xfc
