// A tile of a product of matrices: blocks of both operands come through shared memory, the sums stay in registers.
#pragma once

#include "KernelBuilder.h"

namespace xfc::gpu {

// A matrix in memory, of lines of `width` elements. A product takes sums over k, which runs along a line or from line
// to line.
struct Operand {
  mlir::Value
      data; // f32; or bf16, whose lines start at multiples of 16 bytes and hold zeros from `width` up to the next one
  mlir::Value stride; // elements (i64) from one line to the next
  mlir::Value lines;  // how many there are (i32)
  int64_t width;
  bool along;          // k runs along a line
  bool packed = false; // bf16
};

// The rows that the call is divided over, in a buffer; and a weight [out, in], or its copy in bf16.
Operand rowsOperand(KernelBuilder &k, BufferIndex buffer, int64_t width, bool along);
Operand weightOperand(KernelBuilder &k, BufferIndex buffer, mlir::RankedTensorType weight, bool bf16, bool along);

// How a block of threads and its warps share a tile of the result, and how much of K is in shared memory at a time. A
// warp has warpRows x warpColumns, multiples of 16. Sums take their terms in ascending k, whatever the tile: a tile may
// be chosen by anything.
struct Tile {
  int64_t rows, columns, depth;
  int64_t warpRows, warpColumns;
  int64_t threads() const { return rows / warpRows * (columns / warpColumns) * KernelBuilder::warpSize; }
};

// What a thread has of a tile's sums: rowsOfThread() rows, and of each pairsOfThread() pairs of neighbouring columns;
// rows are 8 apart, pairs 8 columns. Their first, within the tile (i32), and a sum.
class ThreadSums {
public:
  int64_t rowsOfThread() const { return warpRows / 8; }
  int64_t pairsOfThread() const { return warpColumns / 8; }
  mlir::Value firstRow() const { return threadRow; }
  mlir::Value firstColumn() const { return threadColumn; }
  mlir::Value sum(llvm::ArrayRef<mlir::Value> sums, int64_t row, int64_t pair, int64_t which) const {
    return sums[sumAt(row, pair, which)];
  }

protected:
  ThreadSums(int64_t warpRows, int64_t warpColumns) : warpRows(warpRows), warpColumns(warpColumns) {}
  size_t sumAt(int64_t row, int64_t pair, int64_t which) const {
    return (row / 2 * pairsOfThread() + pair) * 4 + row % 2 * 2 + which;
  }

  const int64_t warpRows, warpColumns;
  mlir::Value threadRow, threadColumn;
};

// Products in f32 by fused multiply-adds, or in bf16 by tensor cores with sums in f32.
//
// Two blocks of each operand are in shared memory: while one is multiplied, the next arrives. What is packed is copied;
// rows in f32 pass registers, where bf16 rounds them. Lines of bf16 have their 16 bytes permuted, those of f32 have 16
// bytes more than they need, so that the rows of a fragment lie in different banks.
class ProductTile : public ThreadSums {
public:
  // a is M x K, b is N x K, in that each has k along its lines or not. Takes shared memory.
  ProductTile(KernelBuilder &k, const Tile &tile, bool bf16, const Operand &a, const Operand &b);

  // The sums of rows `row` .. and columns `column` .. (i32, multiples of the tile's) over k < inner (i32). For all
  // threads of the block: there is a barrier before anything else. With `shares`, for an `a` in f32 whose k runs from
  // line to line, also the thread's shares of the sums of the rows of `a`, unrounded, for sumRows.
  Values multiply(mlir::Value row, mlir::Value column, mlir::Value inner, Values *shares = nullptr);

  // The sum over k of the tile's row number thread(), for each row a thread, from the shares of all threads. In it are
  // barriers.
  mlir::Value sumRows(llvm::ArrayRef<mlir::Value> shares);

private:
  // One operand's way through shared memory.
  struct Side {
    Operand operand;
    int64_t outer, depth, threads; // of the tile
    bool bf16;
    mlir::Value shared, line, column; // this thread's first vector in a block
    mlir::Value first, from;          // the tile's first row or column, and this thread's first vector in memory

    Side(KernelBuilder &k, const Operand &operand, int64_t outer, const Tile &tile, bool bf16);
    int64_t lines() const { return operand.along ? outer : depth; }
    int64_t width() const { return operand.along ? depth : outer; }
    int64_t vector() const { return operand.packed ? 8 : 4; }
    int64_t perLine() const { return width() / vector(); }
    int64_t passes() const { return lines() * perLine() / threads; }
    int64_t lineBytes() const { return bf16 ? width() * 2 : (width() + 4) * 4; }
    int64_t bytes() const { return lines() * lineBytes(); }
    mlir::Value permuted(KernelBuilder &k, mlir::Value line, mlir::Value piece) const;
    void begin(KernelBuilder &k, mlir::Value first);
    Values fetch(KernelBuilder &k, mlir::Value at, mlir::Value slot) const;
    void put(KernelBuilder &k, llvm::ArrayRef<mlir::Value> values, mlir::Value slot) const;
  };
  mlir::Value slotOf(const Side &side, mlir::Value which);
  void multiplyBF16(mlir::Value aSlot, mlir::Value bSlot, Values &sums);
  void multiplyF32(mlir::Value aSlot, mlir::Value bSlot, Values &sums);

  KernelBuilder &k;
  Tile tile;
  bool bf16;
  Side a, b;
  mlir::Value warpRow, warpColumn;
};

// Access to lines of which a thread has pairs of neighbouring columns, without branches: 8 bytes at once where all of
// them let it.
class PairAccess {
public:
  PairAccess(KernelBuilder &k, int64_t columns);
  // Lines from p on, `stride` elements (i64) apart, are accessed, too.
  void include(mlir::Value p, mlir::Value stride);
  // What is accessed of the pair from `column` (i32) on if its line is there (i1): both at once, the first alone, the
  // second alone.
  using Conditions = std::array<mlir::Value, 3>;
  Conditions conditions(mlir::Value isLine, mlir::Value column) const;
  Values load(const Conditions &, mlir::Value p) const;
  void store(const Conditions &, mlir::Value first, mlir::Value second, mlir::Value p) const;

private:
  KernelBuilder &k;
  int64_t columns;
  mlir::Value aligned;
};

} // namespace xfc::gpu
