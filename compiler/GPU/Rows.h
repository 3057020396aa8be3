// Spreads the features of a row over the threads that share it.
#pragma once

#include "KernelBuilder.h"

namespace xfc::gpu {

// The rows that a block takes in an elementwise kernel: about 16 elements per thread, but at least one row.
int64_t rowsPerBlock(int64_t width);
// Spreads the groups of this chunk's `per` rows over the block's threads: body(row, group). Each row has `groups` of
// them, a compile-time constant.
void eachGroup(KernelBuilder &k, int64_t per, int64_t groups,
               const std::function<void(mlir::Value, mlir::Value)> &body);
// The threads that share a row: a warp, or the whole block if rows are long. Unless a kernel asks for warps
// (RowsInMemory::ofWarp), this depends on `width` alone.
class RowTeam {
public:
  const int64_t width; // features of the row
  // The rows of this chunk, with vectors if all of `buffers` allow them: body(row). Returns the partition of the work.
  Partition eachRow(llvm::ArrayRef<BufferIndex> buffers, const std::function<void(mlir::Value)> &body);
  // Emits the body, with vectors if all of `buffers` allow them.
  void vectorized(llvm::ArrayRef<BufferIndex> buffers, const std::function<void()> &body);

  // Spreads rows from .. to - 1 (i64) over the block's teams: body(row, state). Each team takes every teams()-th row,
  // in ascending order. Returns this team's final state.
  Values someRows(mlir::Value from, mlir::Value to, mlir::ValueRange state,
                  const std::function<Values(mlir::Value, Values)> &body);

  // Whether the threads are those of a warp.
  bool isWarp() const { return team == KernelBuilder::warpSize; }
  // Reductions over the team's threads, in a fixed tree. Every thread gets the result.
  mlir::Value across(mlir::Value v, const KernelBuilder::Combine &combine);
  mlir::Value sum(mlir::Value v), max(mlir::Value v);
  // Runs the body in one thread of the team.
  void once(const std::function<void()> &body);

protected:
  // Sets the builder's threads, so it has to be constructed before anything that depends on them.
  RowTeam(KernelBuilder &k, int64_t width, int64_t threads, bool byWarp);
  mlir::Value member(); // index of this thread among those that share the row
  int64_t teams() const { return k.threads / team; }

  KernelBuilder &k;
  const int64_t team;
  int64_t n = 1; // features that a thread takes at once, 1 or 4
};

// Rows that stay in registers: a thread has groups of adjacent features, interleaved with those of the other threads.
// NOLINTNEXTLINE(misc-multiple-inheritance): rows as kernels see them, made by the threads that share one
class RowsInRegisters final : public ShortRows, private RowTeam {
public:
  RowsInRegisters(KernelBuilder &k, int64_t width);
  using RowTeam::width;

  Partition each(llvm::ArrayRef<BufferIndex> buffers, const std::function<void(mlir::Value)> &body) override;
  Partition eachOfPart(int64_t parts, llvm::ArrayRef<BufferIndex> buffers, llvm::ArrayRef<BufferIndex> sums,
                       const PartBody &body) override;
  // Past the row's end, loads give 0 and nothing is stored.
  Row load(const View &p) override;
  Row keep(llvm::ArrayRef<Row> operands, const View &to, const ComputeOne &compute) override;
  void store(llvm::ArrayRef<Row> operands, const View &to, const ComputeOne &compute) override;
  mlir::Value largest(llvm::ArrayRef<Row> operands, const ComputeOne &compute) override;
  Values sums(int64_t count, llvm::ArrayRef<Row> operands, const Compute &compute) override {
    return sumsAndTotals(count, operands, {}, compute);
  }
  Values sumsAndTotals(int64_t count, llvm::ArrayRef<Row> operands, llvm::MutableArrayRef<Row> totals,
                       const Compute &compute) override;
  void once(const std::function<void()> &body) override { RowTeam::once(body); }

private:
  void store(llvm::ArrayRef<mlir::Value> values, const View &p);
  // Stores at p, for each feature, the sum over the block's teams, in their order. All threads of the block take part.
  // Contains barriers.
  void storeSum(llvm::ArrayRef<mlir::Value> values, const View &p);
  int64_t groups() const { return (width + team * n - 1) / (team * n); }
  mlir::Value feature(int64_t i); // of this thread's group i
  mlir::Value inside(int64_t i);  // whether that is within the row; null if it always is
};

// lse is maximum + log(sum of exp(x - maximum)) of a row; threadSum is this thread's part of the sum of x.
struct RowSums {
  mlir::Value lse, threadSum;
};

// Rows that may be too long for registers, such as rows of logits, and are read again each time they are needed.
// NOLINTNEXTLINE(misc-multiple-inheritance): as above
class RowsInMemory final : public LongRows, public RowTeam {
public:
  RowsInMemory(KernelBuilder &k, int64_t width);
  // Rows each of which one warp takes, in a block whose number of threads is already set.
  static RowsInMemory ofWarp(KernelBuilder &k, int64_t width) { return {k, width, k.threads, /*byWarp=*/true}; }
  // Rows of another width for the same threads, which take one feature at a time.
  RowsInMemory another(int64_t other) const { return {k, other, k.threads, isWarp()}; }
  using RowTeam::width;

  Partition each(llvm::ArrayRef<BufferIndex> buffers, const std::function<void(mlir::Value)> &body) override {
    return eachRow(buffers, body);
  }
  Row load(const View &p) override { return {p, {}}; }
  void store(llvm::ArrayRef<Row> operands, const View &to, const ComputeOne &compute) override;
  Values sums(int64_t count, llvm::ArrayRef<Row> operands, const Compute &compute) override;
  void once(const std::function<void()> &body) override { RowTeam::once(body); }
  std::pair<mlir::Value, mlir::Value> logSumExp(const Row &of, bool withSum) override;
  void storeExceptAt(mlir::Value column, mlir::Value there, mlir::Value elsewhere, llvm::ArrayRef<Row> operands,
                     const View &to, const ComputeOne &compute) override;
  void subtractAt(mlir::Value column, mlir::Value amount, const View &to) override;

  // Loops over this thread's features of a row that starts at p, one or four at a time, and carries a state:
  // body(the first (i32), features, state).
  Values loop(const View &p, mlir::ValueRange state,
              const std::function<Values(mlir::Value, const Values &, Values)> &body);
  // All threads of the row's team take part. Tokens that are left out count as minus infinity; feature 0 is token
  // `first` (i32), or token 0.
  RowSums rowSums(const View &row, llvm::ArrayRef<int64_t> leftOut = {}, mlir::Value first = {});

private:
  RowsInMemory(KernelBuilder &k, int64_t width, int64_t threads, bool byWarp)
      : LongRows(width), RowTeam(k, width, threads, byWarp) {}
  // Visits this thread's features: body(the first, the operands' at each).
  void each(llvm::ArrayRef<Row> operands,
            const std::function<void(mlir::Value, llvm::ArrayRef<llvm::SmallVector<mlir::Value>>)> &body);
};

} // namespace xfc::gpu
