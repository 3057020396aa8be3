// Builds the plain kernel of one op from upstream dialects: linalg, scf, arith and math over memrefs of a call (abi.h).
#pragma once

#include "Dialect/XFC.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <map>

namespace xfc {

class PlainBuilder;

// A number in a kernel: float, integer, index or boolean. Operators append the arith op for its type; a C++ number
// takes the type of the other operand.
class Number {
public:
  template <typename T>
    requires std::is_arithmetic_v<T>
  Number(T literal) : literal(static_cast<double>(literal)) {}
  Number(PlainBuilder &b, mlir::Value value) : b(&b), value(value) {}
  bool isLiteral() const { return !value; }
  mlir::Type type() const { return value.getType(); }
  // The number as a value of `type`, converted if it has another type.
  mlir::Value as(PlainBuilder &b, mlir::Type type) const;

  PlainBuilder *b = nullptr;
  mlir::Value value; // null for a C++ number
  double literal = 0;
};

Number operator+(const Number &x, const Number &y);
Number operator-(const Number &x, const Number &y);
Number operator*(const Number &x, const Number &y);
Number operator/(const Number &x, const Number &y); // integers must not be negative
Number operator%(const Number &x, const Number &y); // integers must not be negative
Number operator<(const Number &x, const Number &y);
Number operator>(const Number &x, const Number &y);
Number operator==(const Number &x, const Number &y);
Number operator&(const Number &x, const Number &y);
Number min(const Number &x, const Number &y);
Number max(const Number &x, const Number &y);
Number select(const Number &condition, const Number &x, const Number &y);
Number exp(const Number &x);
Number log(const Number &x);
Number sqrt(const Number &x);
Number tanh(const Number &x);
Number erf(const Number &x);

// The part of a dimension that a slice takes: one entry (which drops the dimension), a range, or everything.
struct Cut {
  Cut(const Number &entry) : offset(entry), dropped(true) {}
  Cut(int entry) : Cut(Number(entry)) {}
  Cut(const Number &offset, const Number &size) : offset(offset), size(size) {}
  static Cut all() { return {Number(0), Number(-1)}; }
  bool isAll() const { return size.isLiteral() && size.literal < 0; }
  Number offset, size = 1;
  bool dropped = false;
};

class PlainBuilder {
public:
  // Begins the kernel void name(call, chunk, scratch) of `op` at the end of `module`. Its single chunk does all the
  // work.
  PlainBuilder(mlir::ModuleOp module, llvm::StringRef name, mlir::Operation *op);

  // The set of rows that the first dimension of a value runs over.
  enum class Of { Rows, Keys, Cache };
  // Memrefs of the op's values: [N, features] for rows, [N] for one number per row, [H * P] for pairs, and a tensor's
  // own shape. They are identified by number, not by value, since a launch whose operands are the same value shares its
  // kernel with launches whose operands differ. An unused result is null; writing to null does nothing.
  mlir::Value operand(unsigned i, Of of = Of::Rows) { return valueOf(i, of); }
  mlir::Value result(unsigned i, Of of = Of::Rows);
  // A buffer (operands, then results) as `count` consecutive elements, whatever the value's shape.
  mlir::Value dense(unsigned buffer, const Number &count);

  // The call's structures (abi.h), as memrefs of i32.
  mlir::Value positions(Of of = Of::Rows) { return ofRows(of, offsetof(xfc_rows, positions)); }
  mlir::Value sequenceOf() { return ofRows(Of::Rows, offsetof(xfc_rows, sequence_of)); }
  mlir::Value sentences();
  mlir::Value slots() { return ofHypotheses(offsetof(xfc_shape, slots)); }
  mlir::Value previousSlots() { return ofHypotheses(offsetof(xfc_shape, before)); }
  Number rowCount(Of of = Of::Rows) { return count(rows(of), offsetof(xfc_rows, rows)); }
  Number elementCount() { return count(call, offsetof(xfc_call, elements)); }
  Number inTensor(size_t offset); // a number of the only tensor's xfc_parted_tensor

  // One head of one sequence of a pairs value.
  struct Head {
    Number sequence, head, firstRow, rows, firstKey, keys, element; // element: the first of its block
    PlainBuilder &b;
    mlir::Value of(mlir::Value pairs) const;                   // [rows, keys]
    mlir::Value rowsOf(mlir::Value rows, int64_t heads) const; // [rows, features / heads]
    mlir::Value queries(mlir::Value numbers) const;            // [rows], one number per row
    mlir::Value keyRows() const;                               // [keys] row numbers in the key set
    mlir::Value limits() const;                                // [rows]
  };
  void forEachHead(PairsType pairs, llvm::function_ref<void(const Head &)> body);
  void forEach(const Number &count, llvm::function_ref<void(const Number &)> body);

  // linalg.generic in Einstein notation: generic("ik,jk->ij", {x, w}, y, body). Each letter is a loop; loops are nested
  // in alphabetical order, and letters that the result lacks are reductions. The body gets an element of each operand
  // and then the result's current element, and returns its new value.
  using Body = llvm::function_ref<Number(llvm::ArrayRef<Number>)>;
  void generic(llvm::StringRef notation, mlir::ValueRange operands, mlir::Value result, Body body);
  // Computes element by element, for operands and a result of one shape.
  void elementwise(mlir::ValueRange operands, mlir::Value result, Body body);
  // Computes element by element and reduces the results to one number that starts as `initial` (of the element type if
  // it is a C++ number).
  Number reduce(llvm::StringRef notation, mlir::ValueRange operands, const Number &initial, Body body);
  // Inside a body: the current index of a letter's loop.
  Number loop(char letter);

  // A part of a memref; dimensions not mentioned are taken whole.
  mlir::Value slice(mlir::Value memref, llvm::ArrayRef<Cut> cuts);
  Number load(mlir::Value memref, llvm::ArrayRef<Number> indices = {});
  void store(const Number &value, mlir::Value memref, llvm::ArrayRef<Number> indices = {});
  void fill(mlir::Value memref, const Number &value);

  // x in double precision, whatever the op's type.
  Number f64(const Number &x) { return {*this, x.as(*this, b.getF64Type())}; }
  // x after the dropout whose id is the call's `dropout`; of a pair, `feature` is the key's position in its sequence.
  Number dropout(const Number &x, double rate, const Number &sentence, const Number &position, const Number &feature,
                 const std::optional<Number> &head = {});
  // x scaled as dropout scales the elements that it keeps.
  Number keptByDropout(const Number &x, double rate);

  mlir::Type element; // of the op's floats
  mlir::ImplicitLocOpBuilder b;

private:
  // Creates a value in the prologue, where it dominates every use.
  mlir::Value first(llvm::function_ref<mlir::Value()> make);
  mlir::Value field(mlir::Value record, size_t offset, mlir::Type type); // read once
  Number count(mlir::Value record, size_t offset);                       // a field of 64 bits as an index
  mlir::Value shape() { return field(call, offsetof(xfc_call, shape), ptr); }
  mlir::Value rows(Of of = Of::Rows);
  mlir::Value keys() { return field(call, offsetof(xfc_call, keys), ptr); }
  mlir::Value memref(mlir::Value pointer, mlir::MemRefType type, llvm::ArrayRef<Number> sizes = {},
                     mlir::Value stride = {});
  mlir::Value array(mlir::Value pointer, const Number &count, mlir::Type type);
  mlir::Value numbers(mlir::Value record, size_t offset, const Number &count); // the i32 that a field points to
  mlir::Value ofRows(Of of, size_t offset); // one for each row, in a field of the set
  mlir::Value ofHypotheses(size_t offset);  // one for each row of a decoding step, in a field of the shape
  mlir::Value valueOf(unsigned buffer, Of of);
  mlir::Type typeOf(unsigned buffer) const;

  mlir::Operation *op;
  mlir::Block *entry;
  mlir::Operation *prologue = nullptr; // the last op of the prologue
  std::map<std::pair<const void *, size_t>, mlir::Value> fields;
  mlir::Value call, cache;
  mlir::Type ptr, i32, i64, index;
  std::string letters; // of the innermost generic
};

} // namespace xfc
