// A tile of a product of f32 rows and a bf16 weight on sm_90a: some warps load, the others multiply.
#pragma once

#include "ProductTile.h"
#include "Schedule/Schedule.h"
#include "Warpgroup.h"

namespace xfc::gpu {

// A bf16 weight [out, in] in blocks of 64 x 64, ordered along `in`, then along `out`. A block in memory already has the
// layout in which wgmma reads it from shared memory (SwizzledMatrix), so it is copied unchanged. Elements beyond the
// weight are 0.
struct BlockedWeight {
  View data;         // of bytes
  int64_t blocks[2]; // along out and in
  bool along;        // k runs along `in`
  BlockedWeight(KernelBuilder &k, BufferIndex buffer, mlir::RankedTensorType weight, bool along);
};
Backend::PackInfo emitPackBlocks(KernelBuilder &, mlir::RankedTensorType weight);

// A cluster of two blocks has two tiles of the same columns, one below the other. Each block loads one half of the
// weight for both, by bulk copies, and its own rows, by copies of 16 bytes, or of 4 if rows are not aligned. A block
// has three warpgroups: the last one loads (the producers), and each of the others rounds and multiplies 64 rows and
// keeps the sums in its registers (the consumers).
class WarpgroupTile : public ThreadSums {
public:
  static constexpr int64_t rows = 128, columns = 256, depth = 64, cluster = 2, threads = 384;

  // Allocates shared memory. Sets the builder's registers and cluster.
  WarpgroupTile(KernelBuilder &k, const Operand &a, const BlockedWeight &b);

  // The sums of the tile at `row` and `column` (i32, multiples of the tile's size; the same column in all of the
  // cluster) over k < inner, in ascending k. All threads of the cluster take part, once in a kernel. Only the threads
  // that have sums run use(sums), so it must not contain barriers of the block.
  void multiply(mlir::Value row, mlir::Value column, int64_t inner,
                const std::function<void(llvm::ArrayRef<mlir::Value>)> &use);

private:
  static constexpr int64_t consumers = 256, producers = threads - consumers, stages = 3;
  static constexpr int64_t registersOfAll = 168, registersOfConsumers = 224, registersOfProducers = 56;
  static_assert(threads * registersOfAll == consumers * registersOfConsumers + producers * registersOfProducers &&
                threads * registersOfAll <= 65536);
  // Padded, so that the 8 bytes that each of 16 lanes of a fragment reads lie in different banks.
  static constexpr int64_t lineBytes = int64_t{depth} * 4 + 32;
  static constexpr int64_t blockBytes = int64_t{64} * 64 * 2, rowsBytes = rows * lineBytes,
                           weightBytes = columns * depth * 2;

  // The current stage of the ring of stages, and the parity of its phase.
  struct Turn {
    mlir::Value stage, parity;
  };
  // Steps through k < inner by `depth`: body(k, turn, state). Returns the final state.
  Values eachTurn(int64_t inner, Values state, const std::function<Values(mlir::Value, const Turn &, Values)> &body);
  mlir::Value full(const Turn &turn), empty(const Turn &turn); // the barriers of a stage
  View rowsOf(const Turn &turn), weightOf(const Turn &turn);   // its bytes
  void fetchRows(mlir::Value row, mlir::Value at, const Turn &turn);
  void fetchWeight(mlir::Value column, mlir::Value at, const Turn &turn);
  Values fragments(const Turn &turn);

  KernelBuilder &k;
  Operand a;
  BlockedWeight b;
  View barriers, rowsShared, weightShared;
  mlir::Value own;
};

} // namespace xfc::gpu
