// What a kernel of an optimizer is told about each of the tensors that it takes one by one.
#pragma once

#include <cstdint>

namespace xfc {

// A tensor that a launch takes in chunks of its own, and what the kernel is told about it, as consecutive immediates.
// Its last dimension is that of the columns; all others together are the rows.
struct PartedTensor {
  int64_t first; // of its chunks among those of the launch's tensors
  int64_t rows, columns;
  int64_t per, parts;  // sums over rows are cut into `parts` parts of `per` rows, the last of which may be shorter
  int64_t matrix = -1; // its index among the launch's tensors of two or more dimensions; -1: it has fewer
  int64_t group = 0;   // the row of the argument `hyper` with which it is updated; -1: it is not updated
};
constexpr int64_t numbersOfTensor = sizeof(PartedTensor) / sizeof(int64_t);

} // namespace xfc
