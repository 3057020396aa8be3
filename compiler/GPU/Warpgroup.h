// Instructions of sm_90a: barriers in shared memory, copies that arrive at them, products by four warps (wgmma), and
// clusters of blocks.
#pragma once

#include "KernelBuilder.h"
#include <vector>

namespace xfc::gpu {

// A barrier (mbarrier) is 8 bytes of shared memory and goes through phases. A phase ends when there have been
// `arrivals` arrivals and all announced bytes have been copied. One thread initializes the barriers and then fences; a
// clusterBarrier() must follow before they are used.
void initBarrier(KernelBuilder &, mlir::Value barrier, int64_t arrivals);
void fenceBarriers(KernelBuilder &);
// Announces the bytes of bulk copies, and arrives.
void arriveExpecting(KernelBuilder &, mlir::Value barrier, int64_t bytes);
// This thread arrives once all copies that it has started so far (copyAsync) are complete.
void arriveAfterCopies(KernelBuilder &, mlir::Value barrier);
// If `condition` (i1) holds, arrives, without a branch, at the barrier at the same address in a block (i32) of the
// cluster. This tells another block that this thread's reads are done; it does not make the thread's writes visible.
void arriveAt(KernelBuilder &, mlir::Value barrier, mlir::Value block, mlir::Value condition);
// Waits until the phase of this parity (i32) is over. The first phase has parity 0; the one before it is over from the
// start. After the wait, the announced bytes are visible, and so is what threads of this block wrote before arriving.
void waitForPhase(KernelBuilder &, mlir::Value barrier, mlir::Value parity);

// Copies from global memory to the same address in the shared memory of each of the cluster's first `blocks` blocks, as
// a multicast, whose bytes arrive at the barrier at the same address there. `to`, `from` and `bytes` are multiples of
// 16. One thread calls it.
void copyToCluster(KernelBuilder &, const View &to, const View &from, int64_t bytes, mlir::Value barrier,
                   int64_t blocks);

mlir::Value blockOfCluster(KernelBuilder &); // this block's index in its cluster (i32)
// A barrier of all threads of the cluster. Of a thread's writes, the others see only those that it released by a fence.
void clusterBarrier(KernelBuilder &);

// Lowers or raises the number of registers per thread of four warps, the first of which has an index that is a multiple
// of 4, to `count` (a multiple of 8).
enum class Registers { GiveUp, Get };
void setRegisters(KernelBuilder &, Registers what, int64_t count);

// A matrix of bf16 in shared memory, in blocks of consecutive lines of `side` elements: 64, 32 or 16. k runs along the
// lines, if `along`, or from line to line; blocks have the next elements in the direction of the lines, and are
// `blockBytes` apart. Pieces of 16 bytes are swizzled: piece i of a line of 64 elements is at i ^ (line % 8), of 32 at
// i ^ (line / 2 % 4), and of 16 at i ^ (line / 4 % 2). The matrix begins at a multiple of 1024 bytes.
struct SwizzledMatrix {
  mlir::Value address;
  bool along;
  int64_t blockBytes;
  int64_t side = 64;
};
// Orders what threads of this block have written to shared memory, and this thread knows of, before what wgmma reads
// there for this thread.
void fenceProxy(KernelBuilder &);

// sums += a b over `depth` of k, by four warps, each of which has 16 of the 64 rows of a and of the sums. Without
// `sums`, the product starts new ones. A thread has half as many sums as b has columns (a multiple of 8). If a is
// `packed`, it is in registers: four for every 16 of k, in the layout of mma.sync.
struct WarpgroupProduct {
  Values sums;
  SwizzledMatrix a;
  Values packed;
  SwizzledMatrix b;
  int64_t columns, depth;
};
// Computes products, all of which have sums or none, together, and waits for them. Sums take their terms in ascending
// k, 16 at a time. Returns the sums of each.
std::vector<Values> multiplyWarpgroup(KernelBuilder &, llvm::ArrayRef<WarpgroupProduct> products);

} // namespace xfc::gpu
