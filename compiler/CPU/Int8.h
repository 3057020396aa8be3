// Rows and weights as int8: how they are rounded, packed and multiplied.
//
// A row of floats x with largest magnitude m (at least 2^-100, so that zeros stay zeros) becomes the integers q =
// round(x r), r = 127 / m, ties to even, and the scale s = m / 127; r and s are rounded to f32, x r is not rounded
// before it becomes q. A row with a NaN or an infinity has such a scale, and such results. Sums are exact in 32 bits,
// in any order.
//
// A row in scratch: the units (MicroKernel.h) of the form, the scale, and in the form Quads what its sums lack. A panel
// of a weight: its units, the columns' scales [panel], and where integers of rows are stored as q + 128, what these 128
// add to the columns' sums [panel].
#pragma once

#include "MicroKernel.h"

namespace xfc {

// The inner dimension up to which sums are exact: 255 * 127 * 65536 < 2^31.
constexpr int64_t largestInt8Inner = 65536;

void copyInt8Row(KernelBuilder &k, const Tiling &t, mlir::Value from, mlir::Value to, int64_t elements);

// Fills column `column` of the panel at `to` with a row of a weight [outer, inner], or with zeros.
void packInt8Column(KernelBuilder &k, const Tiling &t, mlir::Value from, int64_t inner, mlir::Value to,
                    mlir::Value column);
void packInt8Zeros(KernelBuilder &k, const Tiling &t, int64_t inner, mlir::Value to, mlir::Value column);

// sum + the products of a unit of a row, the same in every lane, with units of a vector of columns. In the form Quads
// `row` says what is negative and `magnitude` how large it is.
mlir::Value addInt8(KernelBuilder &k, const Tiling &t, mlir::Value sum, mlir::Value row, mlir::Value magnitude,
                    mlir::Value columns);

// s_x s_w sum of a row in scratch and a vector of columns of the panel, from `column` on (static).
mlir::Value scaleInt8(KernelBuilder &k, const Tiling &t, mlir::Value sum, mlir::Value row, int64_t inner,
                      mlir::Value panel, int64_t column);

} // namespace xfc
