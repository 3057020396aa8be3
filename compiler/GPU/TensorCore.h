// Instructions for tiles of matrices: loads of fragments of bf16 from shared memory, products of fragments, and
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

// Numbers of f32, each split into the nearest number of TF32, which has 11 significant bits, and the rest, of which a
// product uses 11 bits. So 22 bits count. Numbers above 3.4e38 become infinite.
struct SplitNumbers {
  Values high, low;
  SplitNumbers(KernelBuilder &, llvm::ArrayRef<mlir::Value> numbers);
};

// c += a b in f32, by tensor cores, as a.high b.high + (a.high b.low + a.low b.high); a.low b.low, which is left out,
// is at most 2^-22 of the product. a is 16x8, four numbers from ofA on: row lane/4 and the eighth after it of column
// lane % 4, then both rows of the fourth column after it. b is 8x8, two numbers from ofB on: row lane % 4 and the
// fourth after it of column lane/4. c is as above. Tensor cores truncate sums, so only the terms of these eight columns
// are added there, and their sum is added to c with rounding to nearest (Ootomo and Yokota, "Recovering single
// precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022).
void multiplySplit(KernelBuilder &, const SplitNumbers &a, int64_t ofA, const SplitNumbers &b, int64_t ofB,
                   llvm::MutableArrayRef<mlir::Value> c);

// Copies 4 or 16 bytes from global to shared memory asynchronously, or writes zeros if `valid` (i1) is false. Both
// addresses are multiples of the size. The bytes are visible to this thread once it has waited, and to other threads
// after a barrier that follows.
void copyAsync(KernelBuilder &, const View &to, const View &from, mlir::Value valid, int64_t bytes = 16);
void commitCopies(KernelBuilder &);                   // makes a group of the copies since the last commit
void waitForCopies(KernelBuilder &, int64_t pending); // for all groups but the last `pending`

} // namespace xfc::gpu
