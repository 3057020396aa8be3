// Builds the body of one kernel for a CPU: adds vectors to what CodeBuilder has for every target. The rows of a Machine
// come with CPUMachine (CPU/Rows.h).
#pragma once

#include "Codegen/Machine.h"
#include "InstructionSet.h"
#include <functional>
#include <string>
#include <vector>

namespace xfc {

class KernelBuilder : public Machine {
public:
  // Adds kernels for an instruction set to `module`; they compute in `element`, f32 or f64.
  KernelBuilder(mlir::ModuleOp module, const InstructionSet &set, mlir::Type element);

  int64_t lanes() const { return vectorBytes / bytes(); }
  int64_t registers() const { return set.vectorBytes == 64 ? 32 : 16; }

  const InstructionSet set;

  // Sums over a row use the same number of lanes on every instruction set, so that they give the same bits: while one
  // of these objects exists, vectors have 64 bytes, which LLVM splits into two registers where registers have 32.
  class SumLanes {
  public:
    explicit SumLanes(KernelBuilder &k, int64_t bytes = 64) : k(k), before(k.vectorBytes) { k.vectorBytes = bytes; }
    ~SumLanes() { k.vectorBytes = before; }
    SumLanes(const SumLanes &) = delete;
    SumLanes &operator=(const SumLanes &) = delete;

  private:
    KernelBuilder &k;
    const int64_t before;
  };

  // kernel() defines void name(call, chunk, previous, scratch), an xfc_kernel; helper() defines a function that kernels
  // call, once per module.
  void kernel(llvm::StringRef name, const std::function<void()> &body);
  void helper(llvm::StringRef name, mlir::TypeRange arguments, const std::function<void(mlir::ValueRange)> &body);
  void invoke(llvm::StringRef name, mlir::ValueRange arguments);
  mlir::Value previous;
  View scratch;
  // Room for a row in the scratch of a kernel that asks for nothing else there, and the bytes of all such rows.
  View scratchRow(int64_t width);
  int64_t scratchBytes() const { return scratchElements * bytes(); }
  // Emits `last` at the end of the kernel, in whose body this is called.
  void atEnd(std::function<void()> last);
  // Memory of the kernel for one value.
  mlir::Value onStack(mlir::Type type);

  // Floats.
  mlir::Value splat(double value) { return constant(value, vectorType(lanes())); }
  mlir::Value spread(mlir::Value x); // a vector of a scalar; a vector as it is
  mlir::Value exp(mlir::Value a) override;
  mlir::Value tanh(mlir::Value a) override, erf(mlir::Value a) override;

  // Memory. Without AVX512-BF16, bf16 is rounded and widened by operations on its bits: LLVM would call a function for
  // each number, which GCC's library has from version 13 on.
  mlir::Value widened(mlir::Value v, mlir::Type stored) override;
  mlir::Value narrowed(mlir::Value v, mlir::Type stored) override;
  mlir::Type inMemory(mlir::Type stored) override;
  // The bits of f32 numbers or vectors (as i32) whose upper halves are those of the nearest bf16, ties to even.
  mlir::Value bitsOfBF16(mlir::Value x);
  using CodeBuilder::load;
  mlir::Value load(const View &p, int64_t n);
  // The first `n` lanes of a vector (n static): the others read as 0, though their memory is read, and are not written.
  mlir::Value loadPart(const View &p, int64_t n);
  void storePart(mlir::Value value, const View &p, int64_t n);
  void storePart(double number, const View &p, int64_t n) { storePart(splat(number), p, n); }
  // Lanes outside the mask read as 0 and are not written; their memory is not accessed.
  mlir::Value loadMasked(const View &p, mlir::Value mask);
  void storeMasked(mlir::Value value, const View &p, mlir::Value mask);
  void storeMasked(double number, const View &p, mlir::Value mask) { storeMasked(splat(number), p, mask); }
  // Stores a whole vector past the caches, at an address that is a multiple of its size: what nothing reads soon then
  // needs no lines from memory first. Other threads may see it only after `completeStores`, with which the kernel ends.
  void storePastCaches(mlir::Value value, const View &p);
  void completeStores();
  // Prefetches the cache line at p: into L1 for writing, or into L2 for later reading.
  void prefetchForWriting(const View &p), prefetch(const View &p);
  // x in the first `n` lanes (static), `rest` in the others.
  mlir::Value upTo(int64_t n, mlir::Value x, const Term &rest);
  // Lanes j where start + j < end, as a mask.
  mlir::Value lanesBelow(const Term &start, const Term &end);

  // Vectors.
  mlir::Value iota(int64_t n); // 0, 1, .. as i32
  mlir::Value broadcast(mlir::Value x);
  mlir::Value lane(mlir::Value v, int64_t i);
  std::pair<mlir::Value, mlir::Value> halves(mlir::Value v);
  mlir::Value sum(mlir::Value v); // horizontal sum, as a fixed tree
  mlir::Value largest(mlir::Value v);
  void transpose(llvm::SmallVectorImpl<mlir::Value> &tile); // lanes x lanes

  // Runs body(offset, lanes used, state) for the whole vectors of `count` features (static), then for the tail.
  Values features(int64_t count, mlir::ValueRange state,
                  const std::function<Values(mlir::Value, int64_t, Values)> &body);
  void features(int64_t count, const std::function<void(mlir::Value, int64_t)> &body);
  // Runs `body` for each row of this chunk; chunks have `per` rows.
  using Machine::eachRow;
  void eachRow(int64_t per, const std::function<void(mlir::Value)> &body);

  // Identifies the random numbers of a row, or of one head in a row: three of the four words of a Philox counter
  // (abi.h), as i32. `head` is the number of the head plus one, or 0 if the numbers are of the whole row.
  struct DropoutRow {
    mlir::Value position, sentence, head;
  };
  DropoutRow dropoutRow(mlir::Value position, mlir::Value sentence, const Term &headPlusOne) {
    mlir::Value head = index(headPlusOne);
    return {truncated(position), truncated(sentence), truncated(head)};
  }
  DropoutRow dropoutRow(mlir::Value row); // of this row as a whole
  // Philox: four vectors of random words, one word for each of the given counters (abi.h).
  std::array<mlir::Value, 4> philox(const DropoutRow &row, mlir::Value counters);
  // The words of the eight counters that have the numbers of 64 elements: those from `first` on, a multiple of 64.
  std::array<mlir::Value, 4> wordsOf64(const DropoutRow &row, mlir::Value first);
  // From these words, the numbers of the `lanes` elements from the i-th of 64 on (static i), as upper halves of words.
  mlir::Value randomNumbers(const std::array<mlir::Value, 4> &words, int64_t i);
  // Words with the lower halves as upper halves.
  mlir::Value lowerHalves(mlir::Value words);
  // The dropout factors, 0 or 1/(1-rate), for numbers that are upper halves of words.
  mlir::Value keepFactor(mlir::Value numbers, double rate);

private:
  mlir::Value firstLanes(int64_t n); // as a mask
  int64_t vectorBytes, scratchElements = 0;
  mlir::Block *entry = nullptr; // of the kernel
  std::vector<std::function<void()>> atEndOfKernel;
  // The keys of Philox's rounds for this op, two words of 64 bits each, which the kernel computes at its beginning.
  View roundKeys();
  View keysOfRounds; // null before they are needed
};

} // namespace xfc
