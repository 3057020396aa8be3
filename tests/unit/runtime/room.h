// The capacity of decoders in tests.
#pragma once

#include "plan/Plan.h"
#include <algorithm>

namespace xfc {

// As much room as this many sentences take with this many rows of cache.
inline Counts roomOf(int64_t sentences, int64_t slots) {
  Counts room;
  std::ranges::fill(room.rows, int64_t(1) << 40);
  std::ranges::fill(room.sequences, int64_t(1) << 40);
  std::ranges::fill(room.pairs, int64_t(1) << 40);
  room.longest = int64_t(1) << 40;
  room.sequences[XFC_SOURCE] = sentences;
  room.rows[XFC_CACHE] = slots;
  return room;
}

} // namespace xfc
