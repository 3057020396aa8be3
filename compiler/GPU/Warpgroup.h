// Instructions of sm_90a: barriers in shared memory, copies that arrive at them, products by four warps, clusters of
// blocks.
#pragma once

#include "KernelBuilder.h"

namespace xfc::gpu {

// A barrier is 8 bytes of shared memory. Its phases follow each other: one ends when `arrivals` threads have arrived
// and all bytes have that were announced. One thread makes it, then fences, and a barrier of the cluster follows before
// anyone uses it.
void initBarrier(KernelBuilder &, mlir::Value barrier, int64_t arrivals);
void fenceBarriers(KernelBuilder &);
// Announces bytes of bulk copies, and arrives.
void arriveExpecting(KernelBuilder &, mlir::Value barrier, int64_t bytes);
// This thread arrives when its copies so far (copyAsync) are there.
void arriveAfterCopies(KernelBuilder &, mlir::Value barrier);
// Arrives at the barrier in the same place of a block (i32) of the cluster, if `condition` (i1), without a branch. That
// tells another block that this thread has read what it has read; nothing that it wrote.
void arriveAt(KernelBuilder &, mlir::Value barrier, mlir::Value block, mlir::Value condition);
// Until the phase of this parity (i32, that of the first is 0) is over; the phase before the first one is. Then what
// threads of this block did before they arrived is seen, and the bytes that were announced.
void waitForPhase(KernelBuilder &, mlir::Value barrier, mlir::Value parity);

// From global memory to the same place in the shared memory of each of the cluster's first `blocks` blocks, where the
// bytes arrive at the barrier in the same place. All are multiples of 16. One thread asks for it.
void copyToCluster(KernelBuilder &, mlir::Value to, mlir::Value from, int64_t bytes, mlir::Value barrier,
                   int64_t blocks);

mlir::Value blockOfCluster(KernelBuilder &); // this block's number (i32)
// A barrier of all threads of the cluster. The others see of a thread's writes only what a fence of its own released.
void clusterBarrier(KernelBuilder &);

// Four warps, of which the first's number is a multiple of 4, give up registers so that they have `count` (a multiple
// of 8), or get as many.
enum class Registers { GiveUp, Get };
void setRegisters(KernelBuilder &, Registers what, int64_t count);

// A matrix of bf16 in shared memory, of lines of 64 elements whose 16 bytes number i lie at i ^ (line % 8) (a swizzle
// of 128 bytes). k runs along the lines, which follow each other, or from line to line; then 64 columns of the matrix
// are a block of lines, and blocks are `blockBytes` apart. It begins at a multiple of 1024 bytes.
struct SwizzledMatrix {
  mlir::Value address;
  bool along;
  int64_t blockBytes;
};
// sums += a b, and waits for it: four warps, of which each has 16 rows of a and of the sums. b has as many columns as a
// thread has sums times 2. The terms of a sum are 16 of k at a time, in ascending order, for each four of `a`:
// fragments as multiplyMatrices has them.
Values multiplyWarpgroup(KernelBuilder &, const Values &sums, llvm::ArrayRef<mlir::Value> a, const SwizzledMatrix &b);

} // namespace xfc::gpu
