// Instructions on tiles of matrices in bf16: fragments from shared memory, products of fragments, copies that a thread
// does not wait for.
#pragma once

#include "KernelBuilder.h"

namespace xfc::gpu {

// Two f32 rounded to the nearest bf16, ties to even, as an i32 whose low half is the first.
mlir::Value pairOfBF16(KernelBuilder &, mlir::Value first, mlir::Value second);

// Four matrices of 8x8 bf16 in shared memory: lanes 8i to 8i + 7 hold the addresses of the rows (16 bytes each) of
// matrix i. Result i is this lane's pair of matrix i: row lane/4, columns 2 (lane % 4) and the next; transposed, of its
// transpose.
Values loadMatrices(KernelBuilder &, mlir::Value address, bool transposed);

// c += a b, with a 16x16 (matrices of rows 0-7, 8-15 of columns 0-7, then those of columns 8-15), b 16x8 (rows 0-7,
// 8-15 of its transpose), and c 16x8 in f32: of this lane, row lane/4, columns 2 (lane % 4) and the next, then the same
// of row lane/4 + 8. The terms of one sum are 16 of K; where a row of a and c lies among the 16 changes nothing in its
// sums.
void multiplyMatrices(KernelBuilder &, llvm::ArrayRef<mlir::Value> a, llvm::ArrayRef<mlir::Value> b,
                      llvm::MutableArrayRef<mlir::Value> c);

// 4 or 16 bytes from global to shared memory, both at multiples of as many: `valid` (i1) or zeros. They are there once
// the thread has waited, and for other threads after a barrier that follows.
void copyAsync(KernelBuilder &, mlir::Value to, mlir::Value from, mlir::Value valid, int64_t bytes = 16);
void commitCopies(KernelBuilder &);                   // those since the last commit are a group
void waitForCopies(KernelBuilder &, int64_t pending); // all groups but the last `pending`

} // namespace xfc::gpu
