// Builds the body of one kernel for a GPU: adds threads, shared memory, shuffles and inline PTX to what CodeBuilder has
// for every target.
#pragma once

#include "Codegen/Machine.h"
#include "MachineCode/PTX.h"
#include <array>
#include <string>

namespace xfc::gpu {

// Builds kernels on f32. Indices within a block (threads, lanes, features) are i32; row numbers and strides are i64.
class KernelBuilder : public Machine {
public:
  KernelBuilder(mlir::ModuleOp module, const Architecture &architecture);
  const Architecture &architecture;

  // Builds the entry point `name(call)`. The body may set `threads` before it uses anything that depends on it.
  void kernel(llvm::StringRef name, const std::function<void()> &body);
  int64_t threads = 256; // per block, a multiple of 32
  int64_t registers =
      0; // upper limit per thread; 0 lets ptxas choose, which may spill a few to fit more blocks on a multiprocessor
  int64_t cluster =
      1; // consecutive blocks that run together and access each other's shared memory; divides the number of chunks
  int64_t warps() const { return threads / 32; }
  static constexpr int64_t warpSize = 32;

  // This thread's index in the block, its lane in the warp, and the warp's index in the block (i32).
  mlir::Value thread(), lane(), warp();
  // The number of blocks that were launched (i32), which for a resident kernel may be less than that of the chunks.
  mlir::Value blocks();

  // Allocates `bytes` of the block's shared memory, uninitialized, at a constant offset that is a multiple of
  // `alignment` (at most 1024). The peak, sharedBytes(), must not exceed what the architecture has. Pointers are in
  // address space 3.
  mlir::Value shared(int64_t bytes, int64_t alignment = 16);
  int64_t sharedBytes() const { return sharedEnd; }
  // Frees what was allocated since sharedMark() was `mark`, for reuse. A barrier must separate the two uses.
  void releaseShared(int64_t mark) { sharedNext = mark; }
  int64_t sharedMark() const { return sharedNext; }
  void barrier(); // of all threads of the block

  // The value, of 32 or 64 bits, that lane `lane() ^ mask` of the warp has. All 32 lanes take part.
  mlir::Value shuffleXor(mlir::Value v, int64_t mask);
  // A butterfly reduction over `lanes` consecutive lanes (a power of two up to 32). Every lane gets the result.
  using Combine = std::function<mlir::Value(mlir::Value, mlir::Value)>;
  mlir::Value acrossLanes(mlir::Value v, const Combine &combine, int64_t lanes = 32);
  mlir::Value warpSum(mlir::Value v, int64_t lanes = 32), warpMax(mlir::Value v, int64_t lanes = 32);
  // The largest of the lanes' unsigned integers of 64 bits.
  mlir::Value warpLargest(mlir::Value v);
  // Combines over all threads of the block: within each warp, then over the warps in a tree. Every thread gets the
  // result. Contains barriers.
  mlir::Value acrossBlock(mlir::Value v, const Combine &combine);
  mlir::Value blockSum(mlir::Value v);

  // Integers.
  mlir::Value bitAnd(mlir::Value a, int64_t b), bitOr(mlir::Value a, mlir::Value b),
      bitXor(mlir::Value a, mlir::Value b);
  mlir::Value shiftLeft(mlir::Value a, int64_t b), shiftRight(mlir::Value a, int64_t b);
  mlir::Value quotientUp(mlir::Value a, mlir::Value b); // ceil(a / b) of two i32 that are not negative
  mlir::Value bits(mlir::Value a, mlir::Type type);     // bitcast

  // Floats. exp and log use the GPU's ex2 and lg2, with scaling. Their relative error is 2^-21, plus 2^-24 |x| for exp;
  // near 1, the error of log is absolute.
  mlir::Value exp(mlir::Value a) override;
  mlir::Value exp2(mlir::Value a); // ex2.approx, 0 for minus infinity
  mlir::Value log(mlir::Value a) override;
  mlir::Value maxf(mlir::Value a, mlir::Value b) override; // if one is NaN, the other

  // Memory. n elements (1, 2 or 4) at a pointer that is aligned to their total size.
  mlir::Value widened(mlir::Value v, mlir::Type stored) override;
  using CodeBuilder::load;
  Values load(const View &p, int64_t n);
  void store(llvm::ArrayRef<mlir::Value> values, const View &p);
  using CodeBuilder::store;

  // The same, predicated instead of with a branch. Where the condition (i1) is false, memory is not accessed: a load
  // gives zeros, and nothing is stored.
  Values loadIf(mlir::Value condition, const View &p, int64_t n);
  void storeIf(mlir::Value condition, llvm::ArrayRef<mlir::Value> values, const View &p);
  // Two f32, each rounded to the nearest bf16, ties to even, as an i32 whose low half is the first; and the f32 that
  // such i32 stand for, two for each.
  mlir::Value pairOfBF16(mlir::Value first, mlir::Value second);
  Values halvesOf(llvm::ArrayRef<mlir::Value> pairs);
  // The integer nearest to a number, ties to even, as an i32; four of them, which fit in 8 bits each, as an i32 whose
  // lowest byte is the first; and the f32 that such i32 stand for, four for each.
  mlir::Value integerOf(mlir::Value number);
  Values wordsOf(llvm::ArrayRef<mlir::Value> numbers);
  Values quartersOf(llvm::ArrayRef<mlir::Value> words);
  // Whether four elements of a row can be loaded at once wherever a multiple of four begins. Rows of fewer than 32 bits
  // have multiples of eight features (xfc-assign-types, xfc-set-cache-type).
  mlir::Value aligned(const View &rows);
  mlir::Value aligned(BufferIndex i) { return aligned(rowsOf(i)); }
  // Emits body(4), for vectors of 4 elements, and body(1), between which the kernel chooses: body(4) runs if all of
  // `buffers`, or `rows`, are aligned. There is only body(1) if 4 does not divide `width`.
  void vectorized(llvm::ArrayRef<View> rows, int64_t width, const std::function<void(int64_t)> &body);
  void vectorized(llvm::ArrayRef<BufferIndex> buffers, int64_t width, const std::function<void(int64_t)> &body);

  // Spreads elements from .. to - 1 (i64) of dense buffers, `data`, over the block's threads:
  // body(first, count, state). If all are aligned, elements are taken four at a time, and what remains one at a time.
  Values overSpan(llvm::ArrayRef<View> data, mlir::Value from, mlir::Value to, mlir::ValueRange state,
                  const std::function<Values(mlir::Value, int64_t, Values)> &body);

  // Spreads the indices 0 .. count-1 (i32) over the block's threads.
  void acrossThreads(mlir::Value count, const std::function<void(mlir::Value)> &body);
  void acrossThreads(int64_t count, const std::function<void(mlir::Value)> &body) { acrossThreads(i32Of(count), body); }

  // Rows (Rows.cpp).
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
  bool takesRowsInOrder() const override { return false; }
  std::unique_ptr<ShortRows> shortRows(int64_t width) override;
  std::unique_ptr<LongRows> longRows(int64_t width) override;

  // Philox: four random words for a counter (abi.h), all i32.
  std::array<mlir::Value, 4> philox(const DropoutKey &key, mlir::Value counter);
  // The counter for a feature, or for a key's position: one for all that are equal modulo 8 in a block of 64.
  mlir::Value counterOf(mlir::Value element);
  // The element's number, as the upper half of one of the counter's words or of such a word that was shifted; for a
  // static element, by its place in the block.
  mlir::Value numberOf(const std::array<mlir::Value, 4> &words, mlir::Value element);
  mlir::Value numberOf(const std::array<mlir::Value, 4> &words, int64_t element);
  // Whether an element with this number is kept, and its factor, 0 or 1/(1-rate).
  mlir::Value keeps(mlir::Value number, double rate);
  mlir::Value keepFactor(mlir::Value number, double rate);
  // The key for a row of the set that the call is divided over.
  DropoutKey dropoutKeyOf(mlir::Value op, mlir::Value row);

  // Inline PTX. $0, $1, .. are the results, then the operands (i1, i16, i32, i64, f32, f64 and pointers). Pure code may
  // be removed or merged. Other code is convergent: it stays in order, and the threads it was written for run it as
  // often as written. The first `updated` operands share registers with the first results.
  Values ptx(llvm::StringRef code, mlir::ValueRange operands, mlir::TypeRange results, bool pure = false,
             int64_t updated = 0);

private:
  Values scaled(Values values, const View &p); // as they were loaded from p
  int64_t sharedNext = 0, sharedEnd = 0;
  mlir::Value sharedBase();
};

} // namespace xfc::gpu
