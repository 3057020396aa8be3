// Builds the body of one kernel for a GPU: threads, shared memory, shuffles and PTX, beside what CodeBuilder has for
// every target.
#pragma once

#include "Codegen/CodeBuilder.h"
#include "PTX.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include <array>
#include <string>

namespace xfc::gpu {

// Builds kernels on f32. Numbers within a block (threads, lanes, features) are i32, row numbers and strides i64.
class KernelBuilder : public CodeBuilder {
public:
  KernelBuilder(mlir::ModuleOp module, const Architecture &architecture);
  const Architecture &architecture;

  // An entry `name(call)`. The body may set `threads` before it asks for anything that depends on it.
  void kernel(llvm::StringRef name, const std::function<void()> &body);
  int64_t threads = 256; // of a block, a multiple of 32
  int64_t registers =
      0; // that a thread may have, at most; 0: as ptxas likes, which may spill a few to have more blocks on a processor
  int64_t cluster =
      1; // neighbouring blocks that run together and reach each other's shared memory; divides the number of chunks
  int64_t warps() const { return threads / 32; }
  static constexpr int64_t warpSize = 32;

  // Where a thread is.
  mlir::Value thread(), lane(), warp();

  // Shared memory: `bytes` of the block's own, at an offset fixed here and a multiple of `alignment`, up to 1024; what
  // was there before is not. In all sharedBytes(), at most what the architecture has. Pointers are of address space 3.
  mlir::Value shared(int64_t bytes, int64_t alignment = 16);
  int64_t sharedBytes() const { return sharedEnd; }
  // Gives back all that was asked for since sharedBytes() was `mark`, to be used again. Both uses must lie a barrier
  // apart.
  void releaseShared(int64_t mark) { sharedNext = mark; }
  int64_t sharedMark() const { return sharedNext; }
  void barrier(); // of all threads of the block

  // From another lane of the warp; all 32 take part. Values of 32 or 64 bits.
  mlir::Value shuffleXor(mlir::Value v, int64_t mask);
  // Of `lanes` neighbours (a power of two up to 32), by halves: every lane has the result.
  using Combine = std::function<mlir::Value(mlir::Value, mlir::Value)>;
  mlir::Value acrossLanes(mlir::Value v, const Combine &combine, int64_t lanes = 32);
  mlir::Value warpSum(mlir::Value v, int64_t lanes = 32), warpMax(mlir::Value v, int64_t lanes = 32);
  // The same over all threads, warp by warp and then the warps in order of a tree: every thread has the result. It has
  // barriers inside.
  mlir::Value acrossBlock(mlir::Value v, const Combine &combine);
  mlir::Value blockSum(mlir::Value v);

  // Integers.
  mlir::Value i64Of(mlir::Value a); // i32 that is not negative
  mlir::Value bitAnd(mlir::Value a, int64_t b), bitOr(mlir::Value a, mlir::Value b),
      bitXor(mlir::Value a, mlir::Value b);
  mlir::Value shiftLeft(mlir::Value a, int64_t b), shiftRight(mlir::Value a, int64_t b);
  mlir::Value bits(mlir::Value a, mlir::Type type); // the same bits as another type

  // Floats. exp and log are the GPU's ex2 and lg2 of scaled arguments: relative error 2^-21 (exp: and 2^-24 |x|),
  // absolute for log near 1.
  mlir::Value exp(mlir::Value a) override;
  mlir::Value exp2(mlir::Value a); // ex2.approx, 0 for minus infinity
  mlir::Value log(mlir::Value a);
  mlir::Value maxf(mlir::Value a, mlir::Value b) override; // what is no NaN of the two

  // Memory. n elements (1, 2 or 4) at a pointer that is a multiple of their size together.
  using CodeBuilder::load;
  Values load(mlir::Value p, int64_t n, mlir::Type of = {});
  void store(llvm::ArrayRef<mlir::Value> values, mlir::Value p);
  using CodeBuilder::store;
  // The same without a branch: zeros, and no access, where the condition (i1) is false; nothing is stored.
  Values loadIf(mlir::Value condition, mlir::Value p, int64_t n);
  void storeIf(mlir::Value condition, llvm::ArrayRef<mlir::Value> values, mlir::Value p);
  // Whether rows at p, `stride` elements apart, start at multiples of 16 bytes.
  mlir::Value aligned(mlir::Value p, mlir::Value stride);
  // The body with vectors of 4 where every one of `buffers` has aligned rows of a width that 4 divides, else with 1:
  // body(vector).
  void vectorized(llvm::ArrayRef<BufferIndex> buffers, int64_t width, const std::function<void(int64_t)> &body);

  // Elements from .. to (i64) of dense buffers, which start at `data`, over the block's threads, by fours while all are
  // aligned and then by one: body(first, how many at once, state).
  Values overSpan(llvm::ArrayRef<mlir::Value> data, mlir::Value from, mlir::Value to, mlir::ValueRange state,
                  const std::function<Values(mlir::Value, int64_t, Values)> &body);

  // The rows of this chunk, `per` of them: body(row) by whole warps, each of which takes every warps()-th.
  void eachRowByWarp(int64_t per, const std::function<void(mlir::Value)> &body);
  // The row of this chunk by the whole block, which may use barriers.
  void rowByBlock(const std::function<void(mlir::Value)> &body);
  // Numbers 0 .. count-1 (i32) spread over the block's threads, or over a warp's lanes.
  void acrossThreads(mlir::Value count, const std::function<void(mlir::Value)> &body);
  void acrossThreads(int64_t count, const std::function<void(mlir::Value)> &body) { acrossThreads(i32Of(count), body); }

  // Philox: four random words for a counter (abi.h), all i32; and 0 or 1/(1-rate) for a word.
  std::array<mlir::Value, 4> philox(const DropoutKey &key, mlir::Value counter);
  mlir::Value keepFactor(mlir::Value word, double rate);
  // The key for a row of the set the call is divided over.
  DropoutKey dropoutKeyOf(mlir::Value op, mlir::Value row);

  // Inline PTX: $0, $1, .. are the results, then the operands (i1, i16, i32, i64, f32, f64 and pointers). Pure code may
  // be removed or merged; what is not is kept in order, runs as often as written, by the threads it is written for (it
  // is convergent). The first `updated` operands are in the registers of the first results.
  Values ptx(llvm::StringRef code, mlir::ValueRange operands, mlir::TypeRange results, bool pure = false,
             int64_t updated = 0);

private:
  int64_t sharedNext = 0, sharedEnd = 0;
  mlir::Value sharedBase();
};

} // namespace xfc::gpu
