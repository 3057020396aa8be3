// How the features of a row are spread over the threads that share it.
#pragma once

#include "KernelBuilder.h"
#include "plan/Plan.h"

namespace xfc::gpu {

// Rows element by element, of which a block has about 16 elements a thread, or one row.
int64_t rowsPerBlock(int64_t width);
// The groups of this chunk's `per` rows, `groups` (static) in each, one a thread: body(row, group).
void eachGroup(KernelBuilder &k, int64_t per, int64_t groups,
               const std::function<void(mlir::Value, mlir::Value)> &body);
// Each element of rows of `width`: that of the last of `buffers` from those of the others. A row of a buffer lies where
// `address` says, by default `stride` elements after the one before.
Partition overRows(KernelBuilder &k, int64_t width, llvm::ArrayRef<BufferIndex> buffers,
                   const std::function<mlir::Value(llvm::ArrayRef<mlir::Value>)> &compute,
                   const std::function<mlir::Value(int64_t buffer, mlir::Value row)> &address = {});

// The threads that share a row: a warp, or, where rows are long, the whole block. Which, depends on `width` alone.
class RowTeam {
public:
  int64_t width; // features of the row
  // The rows of this chunk with vectors where every one of `buffers` lets them: body(row). Returns how work is cut.
  Partition eachRow(llvm::ArrayRef<BufferIndex> buffers, const std::function<void(mlir::Value)> &body);
  // The body with vectors where every one of `buffers` lets it.
  void vectorized(llvm::ArrayRef<BufferIndex> buffers, const std::function<void()> &body);

  // Rows from .. to (i64) over the block's teams, each of which takes every so many-th in ascending order:
  // body(row, state). This team's last state.
  Values someRows(mlir::Value from, mlir::Value to, mlir::ValueRange state,
                  const std::function<Values(mlir::Value, Values)> &body);

  // Inside of it. The features a thread takes at once: 1 or 4.
  int64_t vector() const { return n; }
  // Over the threads, to each of them, in a fixed tree.
  mlir::Value across(mlir::Value v, const KernelBuilder::Combine &combine);
  mlir::Value sum(mlir::Value v), max(mlir::Value v);
  // Does it once a row.
  void once(const std::function<void()> &body);

protected:
  // Sets the builder's threads: to be made before anything that depends on them.
  RowTeam(KernelBuilder &k, int64_t width, int64_t threads, bool byWarp);
  mlir::Value member(); // number of this thread among those that share the row
  int64_t teams() const { return k.threads / team; }

  KernelBuilder &k;
  const int64_t team;
  int64_t n = 1;
};

// A row that stays in registers: a thread has groups of neighbouring features, and between them those of the other
// threads.
class RowInRegisters : public RowTeam {
public:
  RowInRegisters(KernelBuilder &k, int64_t width);

  // This thread's features of a row that starts at p; those past the row's end are 0 and not written.
  Values load(mlir::Value p);
  void store(llvm::ArrayRef<mlir::Value> values, mlir::Value p);
  // One operation on each; `masked` makes it 0 past the row's end.
  using Compute = std::function<mlir::Value(llvm::ArrayRef<mlir::Value>)>;
  Values each(llvm::ArrayRef<Values> operands, const Compute &compute, bool masked = false);
  // Over all of the row.
  using RowTeam::sum;
  mlir::Value sum(llvm::ArrayRef<mlir::Value> values);
  // Stores at p, for each feature, the sum of what the block's teams have, in their order. For all threads of the
  // block; barriers are inside.
  void storeSum(llvm::ArrayRef<mlir::Value> values, mlir::Value p);

private:
  int64_t groups() const { return (width + team * n - 1) / (team * n); }
  mlir::Value feature(int64_t i); // of this thread's group i
  mlir::Value inside(int64_t i);  // whether that is within the row; null where it always is
};

// A row that may be too long for registers, such as one of logits, and is read as often as it is needed.
class RowInMemory : public RowTeam {
public:
  RowInMemory(KernelBuilder &k, int64_t width);
  // For a warp of a block whose threads are set already.
  static RowInMemory ofWarp(KernelBuilder &k, int64_t width) { return {k, width, k.threads, /*byWarp=*/true}; }
  // Another row of the same threads, which take one feature at once.
  RowInMemory another(int64_t width) const;

  // This thread's features, vector() of them at f (i32): body(f).
  void each(const std::function<void(mlir::Value)> &body);
  // The same for a row that starts at p, with a state: body(f, features, state).
  Values loop(mlir::Value p, mlir::ValueRange state,
              const std::function<Values(mlir::Value, const Values &, Values)> &body);

private:
  RowInMemory(KernelBuilder &k, int64_t width, int64_t threads, bool byWarp) : RowTeam(k, width, threads, byWarp) {}
};

} // namespace xfc::gpu
