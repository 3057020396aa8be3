// Weights as int4: how they are packed, and multiplied by rows of int8 (ComputeType in Dialect/XFCEnums.td).
//
// A unit of the inner dimension is 64 elements: two groups, each of which has a scale in every column of a weight.
// - A row in scratch has for each unit 16 words of integers, four bytes in a word, and a word for each group: -8 times
//   the sum of its integers. Its scale follows after all units, as in int8 (Int8.h).
// - A panel of a weight has for each unit 8 words in every column, of which a group has four. The low halves of the
//   bytes of a word are the first four of eight elements, the high halves the other four, each plus 8, so that it is
//   not negative. Then comes a word of the scales, as bf16, the first group's in its low half.
//
// Since a row's integers are at most 127, a group's sum is exact in 16 bits for each pair of bytes: 8 * 2 * 15 * 127 is
// less than 2^15. Every weight is 8 too large, for which the word of the row's group makes up. After each group, its
// sum becomes a float, which is multiplied by the scale of the column, and added to the sum of the groups before.
#pragma once

#include "MicroKernel.h"

namespace xfc {

// The elements of a unit, and the words that a row and a column have for it.
inline constexpr int64_t int4Unit = 2 * int4Group, int4LeftWords = int4Unit / 4 + 2, int4RightWords = int4Unit / 8 + 1;

void copyInt4Row(KernelBuilder &k, const Tiling &t, const View &from, const View &to, int64_t elements);
// Fills column `column` of the panel at `to` with a row of a weight [outer, inner].
void packInt4Column(KernelBuilder &k, const Tiling &t, const View &from, int64_t inner, const View &to,
                    mlir::Value column);
// multiplyPanels (MicroKernel.h) for the form Nibbles; sums are floats, without the scales of the rows.
void multiplyInt4(KernelBuilder &k, const Tiling &t, const Left &a, const Right &b, int64_t panels, const Term &depth,
                  const View &c, mlir::Value count, const Ahead &ahead);
// A vector of sums times the scale of a row in scratch.
mlir::Value scaleInt4(KernelBuilder &k, const Tiling &t, mlir::Value sum, const View &row);

} // namespace xfc
