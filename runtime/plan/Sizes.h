// Sizes that depend on a batch, and the counts of a batch with which they are evaluated.
#pragma once

#include "xfc/abi.h"
#include <cstdint>
#include <vector>

namespace xfc {

// Sums over rows may be split into chunks of this many rows, counted from row 0 of any batch, whose partial sums are
// then added in order.
constexpr int64_t chunkRows = 2048;

// A size that depends on the batch: constant + sum of coefficient x count. In bytes unless stated otherwise.
struct Size {
  int64_t constant = 0;
  int64_t rows[XFC_ROW_SETS] = {};
  int64_t pairs[XFC_KEY_STRUCTURES] = {};
  int64_t sequences[XFC_ROW_SETS] = {};
  int64_t chunks[XFC_ROW_SETS] = {}; // of chunkRows rows, the last of which may be shorter; 0 if there is only one
};

// The counts a Size is evaluated with: of one batch, or of the largest batch a run will see.
struct Counts {
  int64_t rows[XFC_ROW_SETS] = {};
  int64_t sequences[XFC_ROW_SETS] = {};
  int64_t pairs[XFC_KEY_STRUCTURES] = {};
  int64_t longest = 0; // rows of the longest sequence, which tables of positions must cover
};
Counts countsOf(const xfc_shape &shape);
Counts larger(const Counts &a, const Counts &b);        // the larger of each count
bool within(const Counts &counts, const Counts &limit); // except `longest`, which takes no room in an arena
int64_t evaluate(const Size &size, const Counts &counts);

// Elements of a tensor of this shape; one for a scalar.
int64_t elementsOf(const std::vector<int64_t> &shape);

} // namespace xfc
