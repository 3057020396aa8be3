// Builds the body of one kernel: scalars, vectors, loops, and the fields of a call.
#pragma once

#include "InstructionSet.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "xfc/abi.h"
#include <cstddef>
#include <functional>
#include <string>

namespace xfc {

using Values = llvm::SmallVector<mlir::Value, 16>;

class KernelBuilder {
public:
  // A module of kernels for an instruction set, of f32 or f64.
  KernelBuilder(mlir::ModuleOp module, const InstructionSet &set, mlir::Type element);

  int64_t lanes() const { return set.vectorBytes * 8 / element.getIntOrFloatBitWidth(); }
  int64_t bytes() const { return element.getIntOrFloatBitWidth() / 8; }
  int64_t registers() const { return set.vectorBytes == 64 ? 32 : 16; }
  bool isF64() const { return element.isF64(); }

  const InstructionSet set;
  mlir::Type element, ptr, i64, i32, i1;
  mlir::VectorType vectorType(int64_t n, mlir::Type of = {}) const;

  // void name(call, chunk, scratch), and private functions it calls, made once a module.
  void kernel(llvm::StringRef name, const std::function<void()> &body);
  void helper(llvm::StringRef name, mlir::TypeRange arguments, const std::function<void(mlir::ValueRange)> &body);
  void invoke(llvm::StringRef name, mlir::ValueRange arguments);
  mlir::Value call, chunk, scratch;

  // The call's fields.
  mlir::Value rows(), keyRows(), keys(), shape();
  mlir::Value field(mlir::Value record, size_t offset, mlir::Type type);
  mlir::Value buffer(int64_t i), stride(int64_t i), immediate(int64_t i);
  mlir::Value rowCount() { return field(rows(), offsetof(xfc_rows, rows), i64); }
  mlir::Value training();

  // Integers.
  mlir::Value index(int64_t value);
  mlir::Value add(mlir::Value a, mlir::Value b), sub(mlir::Value a, mlir::Value b), mul(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, int64_t b) { return mul(a, index(b)); }
  mlir::Value add(mlir::Value a, int64_t b) { return add(a, index(b)); }
  mlir::Value div(mlir::Value a, int64_t b), rem(mlir::Value a, int64_t b); // of what is not negative
  mlir::Value min(mlir::Value a, mlir::Value b), max(mlir::Value a, mlir::Value b);
  mlir::Value equal(mlir::Value a, mlir::Value b), less(mlir::Value a, mlir::Value b);
  mlir::Value notLess(mlir::Value a, mlir::Value b); // unsigned
  mlir::Value both(mlir::Value a, mlir::Value b), either(mlir::Value a, mlir::Value b);
  mlir::Value boolean(bool value);
  mlir::Value i32Of(int32_t value);
  mlir::Value truncated(mlir::Value a); // i64 to i32
  mlir::Value iota(int64_t n);          // 0, 1, .. as i32
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);

  // Floats, scalars and vectors alike.
  mlir::Value constant(double value, mlir::Type like);
  mlir::Value splat(double value) { return constant(value, vectorType(lanes())); }
  mlir::Value scalar(double value) { return constant(value, element); }
  mlir::Value addf(mlir::Value a, mlir::Value b), subf(mlir::Value a, mlir::Value b), mulf(mlir::Value a, mlir::Value b);
  mlir::Value divf(mlir::Value a, mlir::Value b), fma(mlir::Value a, mlir::Value b, mlir::Value c);
  mlir::Value maxf(mlir::Value a, mlir::Value b), minf(mlir::Value a, mlir::Value b);
  mlir::Value lessf(mlir::Value a, mlir::Value b);
  mlir::Value sqrt(mlir::Value a);
  mlir::Value exp(mlir::Value a);  // exactly 0 below -87.3 (f64: -708)
  mlir::Value log(mlir::Value a);  // scalar
  mlir::Value tanh(mlir::Value a), erf(mlir::Value a);
  mlir::Value f64Of(mlir::Value a), elementOf(mlir::Value a);

  // Memory. Offsets count elements of `of`, the element type unless said otherwise.
  mlir::Value offset(mlir::Value p, mlir::Value elements, mlir::Type of = {});
  mlir::Value offset(mlir::Value p, int64_t elements, mlir::Type of = {});
  mlir::Value load(mlir::Value p, int64_t n);
  mlir::Value load(mlir::Value p);
  mlir::Value loadI32(mlir::Value p, mlir::Value i); // widened to i64
  mlir::Value loadI64(mlir::Value p, mlir::Value i);
  void store(mlir::Value value, mlir::Value p);
  // The first `n` lanes of a vector (n static): others read as 0 and are not written.
  mlir::Value loadPart(mlir::Value p, int64_t n);
  void storePart(mlir::Value value, mlir::Value p, int64_t n);
  void storeMasked(mlir::Value value, mlir::Value p, mlir::Value mask);
  // Asks for the cache line at p: into the first cache to be written, or into the second to be read later.
  void prefetchForWriting(mlir::Value p), prefetch(mlir::Value p);
  // Lanes j where start + j < end, as a mask.
  mlir::Value lanesBelow(mlir::Value start, mlir::Value end);

  // Vectors.
  mlir::Value broadcast(mlir::Value x);
  mlir::Value lane(mlir::Value v, int64_t i);
  mlir::Value sum(mlir::Value v);     // a fixed tree
  mlir::Value largest(mlir::Value v);
  void transpose(llvm::SmallVectorImpl<mlir::Value> &tile); // lanes x lanes

  // Control.
  Values loop(mlir::Value from, mlir::Value to, int64_t step, mlir::ValueRange state,
              const std::function<Values(mlir::Value, Values)> &body);
  void loop(mlir::Value from, mlir::Value to, int64_t step, const std::function<void(mlir::Value)> &body);
  void when(mlir::Value condition, const std::function<void()> &then, const std::function<void()> &otherwise = {});
  Values choose(mlir::Value condition, const std::function<Values()> &then, const std::function<Values()> &otherwise);

  // Whole vectors of `features` (static), then the tail: body(offset, lanes used, state).
  Values features(int64_t count, mlir::ValueRange state,
                  const std::function<Values(mlir::Value, int64_t, Values)> &body);
  void features(int64_t count, const std::function<void(mlir::Value, int64_t)> &body);
  // The rows of this chunk, `per` in each.
  void eachRow(int64_t per, const std::function<void(mlir::Value)> &body);

  // Philox: four vectors of `lanes` random words for the given counters (abi.h).
  struct DropoutKey {
    mlir::Value key0, key1, position, sentence, head; // i32 scalars
  };
  DropoutKey dropoutKey(mlir::Value op, mlir::Value position, mlir::Value sentence, mlir::Value headPlusOne);
  std::array<mlir::Value, 4> philox(const DropoutKey &key, mlir::Value counters);
  // 0 or 1/(1-rate) for random words.
  mlir::Value keepFactor(mlir::Value words, double rate);

  mlir::ImplicitLocOpBuilder b;

private:
  mlir::ModuleOp module;
};

} // namespace xfc
