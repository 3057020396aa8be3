// Draws which buffers and gradients of a step lie where in the arena, and when, by the plan's own layout.
#pragma once

#include "plan/Plan.h"
#include <string>
#include <utility>
#include <vector>

namespace xfc {

struct MappedBuffer { // or the gradients that one launch computes
  int64_t offset = 0, bytes = 0;
  int64_t first = 0, last = 0; // the launches between which it is live, these included
  std::string kernel, place;   // of the first of these
};

struct MemoryMap {
  std::vector<std::pair<std::string, int64_t>> programs; // and the launch that each begins with
  std::vector<MappedBuffer> buffers;                     // those that have bytes
  std::vector<int64_t> live;                             // bytes of the buffers live at each launch
  int64_t arena = 0;                                     // bytes
};

// What the programs, run one after the other with such a batch, have in the arena that they share. Throws Error if
// there is no such program.
MemoryMap memoryMap(const Module &module, const std::vector<std::string> &programs, const Counts &counts);

// SVG for a page (support/Markup.h): launches from left to right, addresses from the bottom up.
std::string memoryMapSvg(const MemoryMap &map);

} // namespace xfc
