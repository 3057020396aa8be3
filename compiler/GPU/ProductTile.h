// A tile of a matrix product: blocks of both operands go through shared memory, the sums stay in registers.
#pragma once

#include "KernelBuilder.h"

namespace xfc::gpu {

// A matrix in memory, stored in lines of `width` elements. A product sums over k, which runs along a line or from line
// to line.
struct Operand {
  View data; // f32, or bf16 with lines that start at multiples of 16 bytes and are padded with zeros up to the next one
  mlir::Value lines; // the number of lines (i32)
  int64_t width;
  bool along;          // k runs along a line
  bool packed = false; // bf16
};

// The operands for a buffer of the rows that the call is divided over, and for a weight [out, in] or its bf16 copy.
Operand rowsOperand(KernelBuilder &k, BufferIndex buffer, int64_t width, bool along);
Operand weightOperand(KernelBuilder &k, BufferIndex buffer, mlir::RankedTensorType weight, bool bf16, bool along);

// How a block of threads and its warps share a tile of the result, and how much of K is in shared memory at a time. A
// warp has warpRows x warpColumns, multiples of 16, or 8 columns, the fewest that mma.sync has. Sums take their terms
// in ascending k whatever the tile, so the choice of a tile does not affect results.
struct TileShape {
  int64_t rows, columns, depth;
  int64_t warpRows, warpColumns;
  int64_t threads() const { return rows / warpRows * (columns / warpColumns) * KernelBuilder::warpSize; }
};

// A thread's share of a tile's sums: rowsOfThread() rows, 8 apart, and in each row pairsOfThread() pairs of adjacent
// columns, also 8 apart. firstRow() and firstColumn() are relative to the tile (i32).
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

// Products in f32, by fused multiply-adds or split for tensor cores, whichever is faster; or in bf16 by tensor cores
// with sums in f32.
//
// Shared memory is double-buffered: while one block of each operand is multiplied, the next arrives. Packed operands
// are copied asynchronously; f32 operands go through registers, where a bf16 product rounds them. In lines of bf16, the
// 16-byte pieces are permuted, and lines of f32 are padded by 16 or 32 bytes, so that the numbers of a fragment lie in
// different banks.
class ProductTile : public ThreadSums {
public:
  // The bytes in shared memory from one line of `width` numbers to the next. A fragment of f32 has four numbers in each
  // of eight lines if k runs along them, and otherwise eight numbers in each of four lines.
  static int64_t lineBytes(bool bf16, int64_t width, bool along) {
    return bf16 ? width * 2 : (width + (along ? 4 : 8)) * 4;
  }

  // a is M x K and b is N x K; either may have k along its lines or from line to line. Allocates shared memory.
  ProductTile(KernelBuilder &k, const TileShape &tile, bool bf16, const Operand &a, const Operand &b);

  // The sums of the tile at `row` and `column` (i32, multiples of the tile's size) over k < inner (i32). All threads of
  // the block take part; it begins with a barrier. `shares`, if given, gets this thread's partial sums of the rows of
  // `a`, unrounded, for sumRows; `a` must then be f32, with k from line to line.
  Values multiply(mlir::Value row, mlir::Value column, mlir::Value inner, Values *shares = nullptr);

  // The sum over k of row thread() of the tile's `a`, one row per thread, from the shares of all threads. Contains
  // barriers.
  mlir::Value sumRows(llvm::ArrayRef<mlir::Value> shares);

private:
  // The path of one operand through shared memory.
  struct Side {
    Operand operand;
    int64_t outer, depth, threads; // of the tile
    bool bf16;
    View shared;              // of bytes
    mlir::Value line, column; // this thread's first vector in a block
    mlir::Value first;        // the tile's first row or column
    View from;                // this thread's first vector in memory

    Side(KernelBuilder &k, const Operand &operand, int64_t outer, const TileShape &tile, bool bf16);
    int64_t lines() const { return operand.along ? outer : depth; }
    int64_t width() const { return operand.along ? depth : outer; }
    int64_t vector() const { return operand.packed ? 8 : 4; }
    int64_t perLine() const { return width() / vector(); }
    int64_t passes() const { return lines() * perLine() / threads; }
    int64_t lineBytes() const { return ProductTile::lineBytes(bf16, width(), operand.along); }
    int64_t bytes() const { return lines() * lineBytes(); }
    mlir::Value permuted(KernelBuilder &k, mlir::Value line, mlir::Value piece) const;
    void begin(KernelBuilder &k, mlir::Value first);
    Values fetch(KernelBuilder &k, mlir::Value at, const View &slot) const;
    void put(KernelBuilder &k, llvm::ArrayRef<mlir::Value> values, const View &slot) const;
  };
  View slotOf(const Side &side, mlir::Value which);
  void multiplyBF16(const View &aSlot, const View &bSlot, Values &sums);
  void multiplyF32(const View &aSlot, const View &bSlot, Values &sums);
  void multiplyAdd(const View &aSlot, const View &bSlot, Values &sums);
  void multiplySplitF32(const View &aSlot, const View &bSlot, Values &sums);

  KernelBuilder &k;
  TileShape tile;
  bool bf16;
  Side a, b;
  mlir::Value warpRow, warpColumn;
};

// Access without branches to lines of which a thread has pairs of adjacent columns, 8 apart. Both elements of a pair
// are accessed at once if all lines are aligned for that. Of a line of bf16, which has a multiple of 8 columns, the
// four lanes that share it exchange pairs, so that each accesses 16 adjacent bytes: all lanes of the warp take part,
// and have a multiple of four pairs.
class PairAccess {
public:
  PairAccess(KernelBuilder &k, int64_t columns);
  // Adds rows to the lines that will be accessed.
  void include(const View &rows);
  void include(BufferIndex i);
  // Two numbers of each of `pairs` pairs, the first of which is at `column` (i32), of a line that exists if `isLine`
  // (i1). What does not exist is loaded as 0, and not stored.
  Values load(const View &line, mlir::Value isLine, mlir::Value column, int64_t pairs) const {
    return numbersOf(line, fetch(line, isLine, column, pairs));
  }
  // The same in two steps: what lanes load from memory, and the lanes' own numbers, which they exchange.
  Values fetch(const View &line, mlir::Value isLine, mlir::Value column, int64_t pairs) const;
  Values numbersOf(const View &line, llvm::ArrayRef<mlir::Value> fetched) const;
  void store(llvm::ArrayRef<mlir::Value> numbers, const View &line, mlir::Value isLine, mlir::Value column) const;

private:
  // Whether to access both elements of a pair at once, the first alone, the second alone.
  std::array<mlir::Value, 3> conditions(mlir::Value isLine, mlir::Value column) const;
  // The 16 bytes that a lane accesses for the four lanes whose pairs begin at `column` in this one, and whether they
  // exist.
  std::pair<View, mlir::Value> piece(const View &line, mlir::Value isLine, mlir::Value column) const;

  KernelBuilder &k;
  int64_t columns;
  mlir::Value aligned;
};

} // namespace xfc::gpu
