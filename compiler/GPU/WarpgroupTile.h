// A tile of a product of bf16 rows on sm_90a, with a bf16 weight or with other rows: some warps load, the others
// multiply.
#pragma once

#include "ProductTile.h"
#include "Target/Target.h"
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
PackInfo emitPackBlocks(KernelBuilder &, mlir::RankedTensorType weight);

// A block has three warpgroups: the last one loads (the producers), and each of the others multiplies 64 rows of the
// tile and keeps the sums in its registers (the consumers). Rows are bf16 and copied in pieces of 16 bytes, at which
// they must begin. Where the second operand is a weight, a cluster of two blocks has two tiles of the same columns, one
// below the other, and each block loads one half of the weight for both, by bulk copies.
class WarpgroupTile : public ThreadSums {
public:
  static constexpr int64_t rows = 128, depth = 64, threads = 384;
  static constexpr int64_t clusterOfWeight = 2;
  const int64_t columns; // 128 or 256

  // Whether the architecture has warpgroups, and they multiply these rows in this type.
  static bool multiplies(const Architecture &, std::optional<ComputeType>, llvm::ArrayRef<BufferIndex> rows);

  // Allocates shared memory. Sets the builder's registers and cluster.
  WarpgroupTile(KernelBuilder &k, int64_t columns, const Operand &a, const BlockedWeight &b);
  // a^T b: k runs from line to line of both. With `sumsRows`, a thread whose firstColumn() is 0 has sums of the lines
  // of a, too, which follow the sums of the product: rowSum().
  WarpgroupTile(KernelBuilder &k, int64_t columns, const Operand &a, const Operand &b, bool sumsRows);

  // The sums of the tile at `row` and `column` (i32, multiples of the tile's size; the same column in all of the
  // cluster) over k < inner, in ascending k. All threads of the cluster take part, once in a kernel. Only the threads
  // that have sums run use(sums), so it must not contain barriers of the block.
  void multiply(mlir::Value row, mlir::Value column, const Term &inner,
                const std::function<void(llvm::ArrayRef<mlir::Value>)> &use);

  // A tile's first row and column, as above.
  struct Place {
    mlir::Value row, column;
  };
  // The same for the tiles at place(0), place(1), .. place(count - 1) (i32, the same in all of the cluster), of which
  // the next is loaded while a thread still runs use(place, sums) for one. The threads that load begin each tile with
  // prefetch(place).
  void multiplyAll(mlir::Value count, int64_t inner, const std::function<Place(mlir::Value)> &place,
                   const std::function<void(const Place &, llvm::ArrayRef<mlir::Value>)> &use,
                   const std::function<void(const Place &)> &prefetch);
  // Within prefetch(): has the L2 cache fetch this tile of bf16 rows of this width, so that use() need not wait for
  // memory. Does nothing for other rows.
  void prefetch(BufferIndex rows, const Place &place, int64_t width);

  // The same for tiles in the same rows at the columns 0, `columns`, .. < `end`, in order. The threads that have the
  // sums begin with the state begin(); after each tile they run use(column, sums, state), which returns the next state,
  // and after the last one last(state).
  void multiplyEach(mlir::Value row, int64_t end, int64_t inner, const std::function<Values()> &begin,
                    const std::function<Values(mlir::Value, llvm::ArrayRef<mlir::Value>, Values)> &use,
                    const std::function<void(Values)> &last);

  // The sum over k of a's elements in row firstRow() + 8 `row` of the tile.
  mlir::Value rowSum(llvm::ArrayRef<mlir::Value> sums, int64_t row) const { return sums[columns / 2 + 2 * row]; }

private:
  WarpgroupTile(KernelBuilder &k, int64_t columns, const Operand &a, std::optional<BlockedWeight> weight,
                const Operand &b, bool sumsRows);

  static constexpr int64_t consumers = 256, producers = threads - consumers;
  static constexpr int64_t registersOfAll = 168, registersOfConsumers = 232, registersOfProducers = 40;
  static_assert(threads * registersOfAll == consumers * registersOfConsumers + producers * registersOfProducers &&
                threads * registersOfAll <= 65536);
  static constexpr int64_t side = 64, lineBytes = side * 2, blockBytes = side * lineBytes; // of a block of 64 x 64
  static constexpr int64_t aBytes = rows * depth * 2;
  int64_t bBytes() const { return columns * depth * 2; }
  int64_t stages() const { return columns > 128 ? 4 : 6; }
  int64_t cluster() const { return weight ? clusterOfWeight : 1; }

  // The current stage of the ring of stages, and the parity of its phase.
  struct Turn {
    mlir::Value stage, parity;
  };
  // Runs consume() in the consumers and produce() in the producers, between barriers of the cluster.
  void inRoles(const std::function<void()> &consume, const std::function<void()> &produce);
  Turn firstTurn() { return {k.i32Of(0), k.i32Of(0)}; }
  // Steps through k < inner by `depth`: body(k, turn, state). Returns the final state, and the next turn in `turn`.
  Values eachTurn(const Term &inner, Turn &turn, Values state,
                  const std::function<Values(mlir::Value, const Turn &, Values)> &body);
  // Runs body(i, turn, state) for i = 0, step, .. < end (i32), each of which goes on with the turn after the last
  // one's.
  Values eachTile(const Term &end, int64_t step, Values state,
                  const std::function<Values(mlir::Value, Turn &, Values)> &body);
  Values consume(const Term &inner, Turn &turn);                                    // a tile's sums
  void produce(mlir::Value row, mlir::Value column, const Term &inner, Turn &turn); // loads for a tile
  mlir::Value full(const Turn &turn), empty(const Turn &turn);                      // the barriers of a stage
  View aOf(const Turn &turn), bOf(const Turn &turn);                                // its bytes
  void fetchRows(const Operand &from, mlir::Value line, mlir::Value column, int64_t lines, int64_t blocks,
                 const View &to);
  void fetchWeight(mlir::Value column, mlir::Value at, const Turn &turn);

  KernelBuilder &k;
  Operand a;
  std::optional<BlockedWeight> weight;
  Operand b; // if it is no weight
  const bool sumsRows;
  View barriers, aShared, bShared, ones;
  mlir::Value own;
};

} // namespace xfc::gpu
