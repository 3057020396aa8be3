// The layout of the arena in which a program's buffers lie.
#pragma once

#include "plan/Plan.h"
#include <cstdint>
#include <vector>

namespace xfc {

// Packs a program's buffers into one arena: buffers whose live ranges intersect do not overlap. Pure: the same program
// and counts always give the same layout. Offsets are multiples of 64.
//
// If the program is row by row, threads that are at different steps must not meet either. So the layout is that of one
// row, times the rows, and any share of the rows has the same layout in a part of its own; only the buffers of results,
// whose rows are read together, lie behind it as a whole.
struct Layout {
  std::vector<int64_t> offsets; // parallel to program.buffers
  int64_t bytes = 0;
  int64_t rows = 0, rowBytes = 0; // of the target, if the program is row by row: how many, and the bytes of one
  // Where a buffer begins for the share of `count` rows from row `first` on, if a row of the buffer has `width` bytes.
  int64_t offsetOf(int64_t buffer, int64_t width, int64_t first, int64_t count) const;
};
Layout plan(const Program &program, const Counts &counts);

} // namespace xfc
