// Builds the kernel code that is the same for every target: integers, floats, memory, loops, and the fields of a call.
#pragma once

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "xfc/abi.h"
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <type_traits>

namespace xfc {

using Values = llvm::SmallVector<mlir::Value, 16>;

// The index of a buffer in a call (abi.h): the op's operands in order, then its results; and the type of its elements.
// Made from what the op's accessors return: k.buffer(op.getXMutable()), k.buffer(op.getResult()).
class BufferIndex {
public:
  BufferIndex(int64_t number, mlir::Type element) : number(number), type(element) {}
  BufferIndex(mlir::OpOperand &operand) : number(operand.getOperandNumber()), type(elementOf(operand.get())) {}
  // The first operand of the range.
  BufferIndex(const mlir::MutableOperandRange &operands) : BufferIndex(operands[0]) {}
  BufferIndex(mlir::OpResult result)
      : number(result.getOwner()->getNumOperands() + result.getResultNumber()), type(elementOf(result)) {}
  BufferIndex(mlir::Value result) : BufferIndex(mlir::cast<mlir::OpResult>(result)) {} // as accessors return it
  operator int64_t() const { return number; }
  mlir::Type element() const { return type; }

private:
  static mlir::Type elementOf(mlir::Value);
  int64_t number;
  mlir::Type type;
};

// The buffer of an operand that may be absent.
inline std::optional<BufferIndex> optionalBuffer(const mlir::MutableOperandRange &operand) {
  return operand.empty() ? std::nullopt : std::optional<BufferIndex>(operand);
}

class CodeBuilder;

// The scalar or vector type with elements of another type.
mlir::Type withElements(mlir::Type type, mlir::Type element);

// An operand of arithmetic: a value, or a number, which becomes a constant of the other operands' type (i64 if they are
// numbers, too). Beside a vector, a scalar stands for a vector that has it in all lanes.
class Term {
public:
  template <typename T>
    requires std::is_arithmetic_v<T>
  Term(T number) : number(number) {}
  template <typename T>
    requires std::is_convertible_v<T, mlir::Value>
  Term(T value) : value(value) {}

  mlir::Value value;
  std::optional<double> number;
};

// Elements of one type in memory: where they begin and, if they lie in rows, how many elements apart these begin.
// CodeBuilder::load() widens what is stored in a narrow type to the type that is computed in, and store() rounds to it,
// so that an emitter is the same for every type of its operands. All distances count elements.
class View {
public:
  View() = default; // no buffer, for an operand that is absent
  View(CodeBuilder &k, mlir::Value data, mlir::Type element, const Term &stride = mlir::Value(), mlir::Value scale = {})
      : data(data), stride(stride), element(element), scale(scale), k(&k) {}

  mlir::Value data;            // the address of the first element
  Term stride = mlir::Value(); // the distance of rows (i64), null if there is one row or they are dense
  mlir::Type element;          // in memory
  mlir::Value scale;           // what elements are multiplied by where they are loaded, or null

  explicit operator bool() const { return static_cast<bool>(data); }
  // The elements from this many further on.
  View operator+(mlir::Value elements) const;
  View operator+(int64_t elements) const;
  // Row i, and what follows in it from a column on.
  View row(mlir::Value i) const;
  View row(int64_t i) const;
  View operator()(mlir::Value i, mlir::Value column) const { return row(i) + column; }
  View operator()(mlir::Value i, int64_t column) const { return row(i) + column; }
  View operator()(int64_t i, int64_t column) const { return row(i) + column; }
  // The same memory as elements of another type, as they are.
  View as(mlir::Type other) const { return {*k, data, other, stride}; }
  // The same elements in rows that begin so many elements apart.
  View inRows(const Term &apart) const { return {*k, data, element, apart, scale}; }
  // The same elements, each times a number where it is loaded.
  View times(mlir::Value factor) const { return {*k, data, element, stride, factor}; }

private:
  CodeBuilder *k = nullptr;
};

// All buffers of an op's call.
inline llvm::SmallVector<BufferIndex> buffersOf(mlir::Operation *op) {
  llvm::SmallVector<BufferIndex> buffers;
  for (mlir::OpOperand &operand : op->getOpOperands())
    buffers.push_back(operand);
  for (mlir::OpResult result : op->getResults())
    buffers.push_back(result);
  return buffers;
}

// The buffers of a call to a kernel that packs a weight.
struct PackBuffers {
  static constexpr int64_t weight = 0, packed = 1;
};

class CodeBuilder {
public:
  // Builds kernels that compute in the type `element`. A call and everything it points to are in `addressSpace`.
  // `constantCalls` marks the loads of its fields as invariant, since nothing writes them while a kernel runs.
  CodeBuilder(mlir::ModuleOp module, mlir::Type element, unsigned addressSpace, bool constantCalls);
  virtual ~CodeBuilder() = default;

  static int64_t bytesOf(mlir::Type of) { return of.getIntOrFloatBitWidth() / 8; }
  int64_t bytes() const { return bytesOf(element); }
  bool isF64() const { return element.isF64(); }

  mlir::Type element, ptr, i64, i32, i1;
  mlir::VectorType vectorType(int64_t n, mlir::Type of = {}) const;
  mlir::Value call, chunk;

  // The call's fields.
  mlir::Value rows(), keyRows(), keys(), shape();
  mlir::Value field(mlir::Value record, size_t offset, mlir::Type type);
  // The list of i32 that a field of a record points to.
  View numbers(mlir::Value record, size_t offset) { return at(field(record, offset, ptr), i32); }
  // A buffer without its stride, if its elements are dense or it has one row; and one with it.
  View buffer(BufferIndex i), rowsOf(BufferIndex i);
  View rowOf(BufferIndex i, mlir::Value row); // one of its rows
  mlir::Value stride(BufferIndex i);
  View bufferAt(BufferIndex first, mlir::Value i); // the i-th from `first` on
  mlir::Value dropoutId() { return field(call, offsetof(xfc_call, dropout), i64); }
  mlir::Value elementCount() { return field(call, offsetof(xfc_call, elements), i64); }
  // A number of the i-th record of one of the call's tables, whose records take `bytes`.
  mlir::Value inTable(size_t table, size_t bytes, mlir::Value i, size_t offset);
  mlir::Value rowCount() { return field(rows(), offsetof(xfc_rows, rows), i64); }
  mlir::Value training();
  // The factor of the elements that dropout keeps: 1/(1-rate), or 1 outside training.
  mlir::Value keptFactor(double rate);

  // Integers: i64, or i32 where a number is known to be small.
  mlir::Value index(const Term &value); // as i64
  mlir::Value integer(int64_t value, mlir::Type type);
  mlir::Value add(const Term &a, const Term &b), sub(const Term &a, const Term &b), mul(const Term &a, const Term &b);
  // The quotient and the remainder; no operand may be negative.
  mlir::Value div(mlir::Value a, int64_t b), div(mlir::Value a, mlir::Value b), rem(mlir::Value a, int64_t b);
  mlir::Value min(const Term &a, const Term &b), max(const Term &a, const Term &b);
  mlir::Value equal(const Term &a, const Term &b), less(const Term &a, const Term &b);
  mlir::Value notLess(mlir::Value a, mlir::Value b);    // unsigned
  mlir::Value within(mlir::Value i, const Term &count); // 0 <= i < count
  mlir::Value both(mlir::Value a, mlir::Value b), either(mlir::Value a, mlir::Value b);
  mlir::Value boolean(bool value);
  mlir::Value i32Of(int32_t value);
  mlir::Value truncated(mlir::Value a); // i64 to i32
  mlir::Value i64Of(mlir::Value a);     // of an i32 that is not negative, or of an i64
  mlir::Value select(mlir::Value condition, const Term &a, const Term &b);

  // Floats, scalars and vectors alike. constant() makes integers, too.
  mlir::Value constant(double value, mlir::Type like);
  mlir::Value constant(double value, mlir::Value like) { return constant(value, like.getType()); }
  mlir::Value scalar(double value) { return constant(value, element); }
  mlir::Value addf(const Term &a, const Term &b), subf(const Term &a, const Term &b),
      mulf(const Term &a, const Term &b);
  mlir::Value divf(const Term &a, const Term &b), fma(const Term &a, const Term &b, const Term &c);
  virtual mlir::Value maxf(mlir::Value a, mlir::Value b);
  mlir::Value minf(mlir::Value a, mlir::Value b);
  mlir::Value lessf(const Term &a, const Term &b);
  mlir::Value sqrt(mlir::Value a);
  virtual mlir::Value exp(mlir::Value a) = 0;                  // exactly 0 below -87.3 (f64: -708)
  virtual mlir::Value log(mlir::Value a);                      // of a scalar
  virtual mlir::Value tanh(mlir::Value a), erf(mlir::Value a); // accurate for f32 only
  mlir::Value f64Of(mlir::Value a), elementOf(mlir::Value a);  // of and to an element
  mlir::Value f64OfInteger(mlir::Value a);

  // Memory. What an element of a type in memory is computed in: f64 for f64, and f32 for the narrower floats and i8,
  // while larger integers are themselves. load() widens an element to that type, or a vector of them, and store()
  // rounds floats to the type in memory, to the nearest, ties to even; what becomes an i8 must not be beyond -128 ..
  // 127.
  virtual mlir::Value widened(mlir::Value v, mlir::Type stored);
  virtual mlir::Value narrowed(mlir::Value v, mlir::Type stored);
  // The f32 whose upper half is a bf16, given as such or as an integer of 16 bits; or a vector of them.
  mlir::Value widenedByBits(mlir::Value v);
  // The type as which numbers of this type are loaded and stored, which widened() takes and narrowed() returns:
  // integers of their size if the target knows no such numbers.
  virtual mlir::Type inMemory(mlir::Type stored) { return stored; }
  // An element, or a vector of them, as it was in memory at p: widened, and scaled.
  mlir::Value loaded(mlir::Value v, const View &p);
  mlir::Value load(const View &p);
  void store(mlir::Value value, const View &p);
  void store(double number, const View &p);
  mlir::Value loadIndex(const View &p); // an i32 widened to i64, or an i64
  // Stores the number that a result has for a row, unless nothing reads the result.
  void storeIfRead(mlir::Value number, mlir::Value result, mlir::Value row);
  // Memory at an address, as elements of the type that is computed in unless another one is given.
  View at(mlir::Value address, mlir::Type of = {}) { return {*this, address, of ? of : element}; }
  mlir::Value loadI32(mlir::Value p, mlir::Value i) { return loadIndex(at(p, i32) + i); }
  mlir::Value loadI64(mlir::Value p, mlir::Value i) { return loadIndex(at(p, i64) + i); }

  // Control flow. The induction variable of a loop has the type of its bounds.
  Values loop(const Term &from, const Term &to, int64_t step, mlir::ValueRange state,
              const std::function<Values(mlir::Value, Values)> &body);
  void loop(const Term &from, const Term &to, int64_t step, const std::function<void(mlir::Value)> &body);
  void when(mlir::Value condition, const std::function<void()> &then, const std::function<void()> &otherwise = {});
  Values choose(mlir::Value condition, const std::function<Values()> &then, const std::function<Values()> &otherwise);

  // The key and the counter words of an op's random numbers for a row, and for a head if there is one (abi.h).
  struct DropoutKey {
    mlir::Value key0, key1, position, sentence, head; // i32
  };
  DropoutKey dropoutKey(mlir::Value op, mlir::Value position, mlir::Value sentence, const Term &headPlusOne);

  mlir::ImplicitLocOpBuilder b;

protected:
  mlir::ModuleOp module;

private:
  // The terms as values of one type.
  template <size_t n> std::array<mlir::Value, n> alike(const Term *const (&terms)[n]);
  // An op of two terms, after its other arguments.
  template <typename Op, typename... Leading> mlir::Value of(const Term &x, const Term &y, Leading... leading);
  const bool constantCalls;
};

} // namespace xfc
