// Instructions for tiles of bf16 matrices: loads of fragments from shared memory, products of fragments, and
// asynchronous copies.
#pragma once

#include "KernelBuilder.h"

namespace xfc::gpu {

// Loads four 8x8 matrices of bf16 from shared memory: lanes 8i to 8i + 7 hold the addresses of the rows (16 bytes each)
// of matrix i. Result i is this lane's pair of elements of matrix i, or of its transpose if `transposed`: row lane/4,
// columns 2 (lane % 4) and the next.
Values loadMatrices(KernelBuilder &, const View &row, bool transposed);

// c += a b. a is 16x16, as four 8x8 matrices: rows 0-7 and 8-15 of columns 0-7, then those of columns 8-15. b is 16x8,
// as the transposes of its rows 0-7 and 8-15. c is 16x8 in f32: this lane has row lane/4, columns 2 (lane % 4) and the
// next, then the same columns of row lane/4 + 8. A sum takes 16 terms of K; which of the 16 rows it is in does not
// affect its bits.
void multiplyMatrices(KernelBuilder &, llvm::ArrayRef<mlir::Value> a, llvm::ArrayRef<mlir::Value> b,
                      llvm::MutableArrayRef<mlir::Value> c);

// Copies 4 or 16 bytes from global to shared memory asynchronously, or writes zeros if `valid` (i1) is false. Both
// addresses are multiples of the size. The bytes are visible to this thread once it has waited, and to other threads
// after a barrier that follows.
void copyAsync(KernelBuilder &, const View &to, const View &from, mlir::Value valid, int64_t bytes = 16);
void commitCopies(KernelBuilder &);                   // makes a group of the copies since the last commit
void waitForCopies(KernelBuilder &, int64_t pending); // for all groups but the last `pending`

} // namespace xfc::gpu
