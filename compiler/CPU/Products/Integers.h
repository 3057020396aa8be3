// Integers in vectors: how floats become integers of a byte, and how these are multiplied and summed.
#pragma once

#include "CPU/Builder/KernelBuilder.h"

namespace xfc {

// The bits of a vector as elements of another type.
mlir::Value as(KernelBuilder &k, mlir::Value vector, mlir::Type element);
// The low bytes of a vector's 32-bit integers.
mlir::Value bytes(KernelBuilder &k, mlir::Value integers);
// A vector that has these 32 bits in every lane.
mlir::Value word(KernelBuilder &k, int32_t bits);

// The factor 127 / m by which the elements of a row become integers, and the scale m / 127, where m is the largest of
// their magnitudes, and at least 2^-100 so that zeros stay zeros. Both are rounded to f32. A NaN makes both NaN.
struct Scale {
  mlir::Value factor, scale;
};
Scale scaleOf(KernelBuilder &k, const View &from, int64_t elements);
// A vector of 32-bit integers: those nearest to x times the factors, ties to even. The product is not rounded before.
mlir::Value nearestIntegers(KernelBuilder &k, mlir::Value x, mlir::Value factors);
// The bits of the larger magnitudes, of which one vector is given by its bits. A NaN is larger than infinity, and
// infinity larger than every number.
mlir::Value largerMagnitudes(KernelBuilder &k, mlir::Value magnitudes, mlir::Value x);

// For each 32-bit integer of `sum`: adds the products of the four unsigned bytes and the four signed bytes at its
// place. Only for sets with VNNI.
mlir::Value addFours(KernelBuilder &k, mlir::Value sum, mlir::Value unsignedBytes, mlir::Value signedBytes);
// The products of unsigned and signed bytes, summed in pairs, as 16-bit integers, which must hold them; and the sums of
// pairs of these, as 32-bit integers.
mlir::Value productsOfPairs(KernelBuilder &k, mlir::Value unsignedBytes, mlir::Value signedBytes);
mlir::Value sumsOfPairs(KernelBuilder &k, mlir::Value integers);

} // namespace xfc
