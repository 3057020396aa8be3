// Rows on a CPU.
#pragma once

#include "CPU/Builder/KernelBuilder.h"

namespace xfc {

// A CPU as a Machine: a chunk is some rows, and their features are visited a vector at a time.
class CPUMachine final : public KernelBuilder {
public:
  using KernelBuilder::KernelBuilder;

  using KernelBuilder::eachRow;
  Partition overRows(int64_t width, llvm::ArrayRef<BufferIndex> buffers, const ComputeOne &compute,
                     const StartOfRow &start = {}) override;
  Partition dropRows(int64_t width, BufferIndex from, double rate, BufferIndex to) override;
  Partition sumRows(BufferIndex buffer, mlir::Value count, const std::function<RowStart(mlir::Value)> &rowOf,
                    mlir::TypedValue<mlir::RankedTensorType> sums) override;
  Partition sumColumns(int64_t width, mlir::Value rows, llvm::ArrayRef<View> operands,
                       llvm::ArrayRef<mlir::Value> results, const OfRow &ofRow, const AddToSums &add) override;
  Partition eachPairsRow(int64_t heads, bool cached, const std::function<void(PairsRow &)> &body,
                         std::optional<uint64_t> reach) override;
  void eachOfGrid(mlir::Value from, mlir::Value to, int64_t columns,
                  const std::function<void(mlir::Value, mlir::Value)> &body) override;
  void update(llvm::ArrayRef<View> blocks, mlir::Value from, mlir::Value to, const Compute &compute) override;
  Partition scan(int64_t width, bool backwards, const LoadRow &load, const ScanStep &step) override;
  std::unique_ptr<Spread> overChunk() override;
  std::unique_ptr<Spread> overRow() override;
  Values eachRow(mlir::Value from, mlir::Value to, mlir::ValueRange state,
                 const std::function<Values(mlir::Value, Values)> &body) override;
  bool takesRowsInOrder() const override { return true; }
  std::unique_ptr<ShortRows> shortRows(int64_t width) override;
  std::unique_ptr<LongRows> longRows(int64_t width) override;
};

// Several reductions over a row of `width` features, by vectors and in independent chains, as many as 32-byte registers
// hold. body(f, lanes used, sums) adds the vector at f to a chain; combine(i, x, y) merges the chains of reduction i.
using AddVector = std::function<void(mlir::Value, int64_t, llvm::MutableArrayRef<mlir::Value>)>;
Values reduceRow(KernelBuilder &k, int64_t width, llvm::ArrayRef<mlir::Value> start, const AddVector &body,
                 const std::function<mlir::Value(int64_t, mlir::Value, mlir::Value)> &combine);

} // namespace xfc
