// A tile of rows in f32 times a weight in bf16 on sm_90a: some warps fetch, others multiply.
#pragma once

#include "ProductTile.h"
#include "Schedule/Schedule.h"
#include "Warpgroup.h"

namespace xfc::gpu {

// A weight [out, in] in bf16 in blocks of 64 x 64, which follow each other along `in`, then `out`. A block
// lies in memory as wgmma reads it from shared memory (SwizzledMatrix), so that it is copied as it is; what is beyond
// the weight is 0.
struct BlockedWeight {
  mlir::Value data;
  int64_t blocks[2]; // along out and in
  bool along;        // k runs along `in`
  BlockedWeight(KernelBuilder &k, BufferIndex buffer, mlir::RankedTensorType weight, bool along);
};
Backend::PackInfo emitPackBlocks(KernelBuilder &, mlir::RankedTensorType weight);

// A cluster of two blocks has two tiles of the same columns, one below the other. Each block fetches one half of the
// weight for both, by bulk copies, and its own rows, by copies of 16 bytes, or of 4 where rows are not aligned. A block
// has three warpgroups: the last one fetches; each other one rounds and multiplies 64 rows. The sums stay in their
// registers.
class WarpgroupTile : public ThreadSums {
public:
  static constexpr int64_t rows = 128, columns = 256, depth = 64, cluster = 2, threads = 384;

  // Takes shared memory. Sets the builder's registers and cluster.
  WarpgroupTile(KernelBuilder &k, const Operand &a, const BlockedWeight &b);

  // For all threads of the cluster, once in a kernel: the sums of rows `row` .. and columns `column` .. (i32, multiples
  // of the tile's, the same column in the cluster) over k < inner, in ascending k. use(sums) is for the threads that
  // have them; it has no barriers of the block.
  void multiply(mlir::Value row, mlir::Value column, int64_t inner,
                const std::function<void(llvm::ArrayRef<mlir::Value>)> &use);

private:
  static constexpr int64_t consumers = 256, producers = threads - consumers, stages = 3;
  static constexpr int64_t registersOfAll = 168, registersOfConsumers = 224, registersOfProducers = 56;
  static_assert(threads * registersOfAll == consumers * registersOfConsumers + producers * registersOfProducers &&
                threads * registersOfAll <= 65536);
  static constexpr int64_t lineBytes =
      depth * 4 + 32; // the 8 bytes that 16 lanes of a fragment read lie in different banks
  static constexpr int64_t blockBytes = 64 * 64 * 2, rowsBytes = rows * lineBytes, weightBytes = columns * depth * 2;

  // Stages take turns: which one is next, and the parity of its phase.
  struct Turn {
    mlir::Value stage, parity;
  };
  // Every `depth` of k up to inner: body(k, turn, state). The last state.
  Values eachTurn(int64_t inner, Values state, const std::function<Values(mlir::Value, const Turn &, Values)> &body);
  mlir::Value full(const Turn &turn), empty(const Turn &turn), rowsOf(const Turn &turn), weightOf(const Turn &turn);
  void fetchRows(mlir::Value row, mlir::Value at, const Turn &turn);
  void fetchWeight(mlir::Value column, mlir::Value at, const Turn &turn);
  Values fragments(const Turn &turn);

  KernelBuilder &k;
  Operand a;
  BlockedWeight b;
  mlir::Value barriers, rowsShared, weightShared, own;
};

} // namespace xfc::gpu
