// The layout of the arena in which a program's buffers lie.
#pragma once

#include "plan/Plan.h"
#include <cstdint>
#include <vector>

namespace xfc {

// Gradients lie at the beginning of the arena, laid out like the parameters, for every program that uses them: those
// that compute them leave them there for those that read them. No other value of such a program overlaps a gradient
// that is there, but memory of those that are still to be computed holds other values until then.
struct GradientPart {
  static constexpr int32_t never = -1; // `first` of what is not computed: must be zero before the program runs
  int64_t begin = 0, end = 0;          // bytes of the block
  int32_t first = 0;                   // the step that computes it; 0 if it is there before the program runs
};
// The parts of the block, ascending, which cover it; none if the program does not use gradients.
std::vector<GradientPart> gradientsOf(const Module &module, const Program &program);

// Packs a program's buffers into one arena, around its gradients: what is live at the same time does not overlap. Pure:
// the same program and counts always give the same layout. Offsets are multiples of 64.
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
Layout plan(const Module &module, const Program &program, const Counts &counts);

} // namespace xfc
