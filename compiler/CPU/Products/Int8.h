// Rows and weights as int8: how they are rounded, packed and multiplied.
//
// A row of floats x with largest magnitude m (at least 2^-100, so that zeros stay zeros) becomes the integers
// q = round(x r), r = 127 / m, ties to even, and the scale s = m / 127. r and s are rounded to f32; x r is not rounded
// before it becomes q. A NaN or an infinity in a row makes its scale and its results NaN or infinite. Sums are exact in
// 32 bits, in any order.
//
// In scratch, a row consists of the units of its form (MicroKernel.h), its scale and, in the form Quads, the correction
// of its sums. A panel of a weight consists of its units, the columns' scales [panel] and, where rows are stored as
// q + 128, the contribution of this 128 to the columns' sums [panel].
#pragma once

#include "MicroKernel.h"

namespace xfc {

// The inner dimension up to which sums are exact: 255 * 127 * 65536 < 2^31.
constexpr int64_t largestInt8Inner = 65536;

void copyInt8Row(KernelBuilder &k, const Tiling &t, const View &from, const View &to, int64_t elements);

// Fills column `column` of the panel at `to` with a row of a weight [outer, inner].
void packInt8Column(KernelBuilder &k, const Tiling &t, const View &from, int64_t inner, const View &to,
                    mlir::Value column);

// sum + the products of a row's unit, broadcast to every lane, with the units of a vector of columns. In the form
// Quads, `row` holds the signs of the integers and `magnitude` their magnitudes.
mlir::Value addInt8(KernelBuilder &k, const Tiling &t, mlir::Value sum, mlir::Value row, mlir::Value magnitude,
                    mlir::Value columns);

// s_x s_w sum, after correction of the sum, for a row in scratch and the vector of a panel's columns from `column` on
// (static).
mlir::Value scaleInt8(KernelBuilder &k, const Tiling &t, mlir::Value sum, const View &row, int64_t inner,
                      const View &panel, int64_t column);

} // namespace xfc
