// The loops around the micro-kernel: a block of rows times panels of a packed weight, through tiles of results in
// scratch.
#pragma once

#include "MicroKernel.h"

namespace xfc {

// Multiplies a block of rows of x by panels of a packed weight, in groups of 64 columns, through a tile in scratch. If
// the inner dimension is one block, or if its blocks are taken group by group, all groups share one tile, which stays
// in the L2 cache (of AMX, if the inner dimension is one block, a few rows in the L1 cache); otherwise each group has a
// tile for its sums.
struct Product {
  KernelBuilder &k;
  Tiling t;
  int64_t inner, columns; // K and N, in elements
  int64_t groups;         // per chunk, at most
  // Whether rows of x are copied to scratch in another form; otherwise they are read in place. Tiles read rows of bf16
  // in place if these end with a tile, but for the last ones of a block, which do not fill the tiles' rows.
  bool copies, copiesLast;
  View x, packed; // rows of elements; panels of words
  View a, c;      // in scratch: the copied rows, and the tiles of results

  Product(KernelBuilder &k, const Tiling &t, BufferIndex rows, BufferIndex weight, int64_t inner, int64_t columns,
          int64_t groups);
  // Whether tiles read all rows in place but the last ones.
  static bool readInPlace(const Tiling &t, BufferIndex rows, int64_t inner) {
    return t.products == Products::Tiles && rows.element().isBF16() && inner % (t.pair * Tiling::tile) == 0;
  }
  int64_t tiles() const { return !t.byGroup && t.units(inner) > t.depth ? groups : 1; }
  // Whether scratch has all elements of the rows that are copied after that: they are copied as a whole, or the inner
  // dimension is one block.
  bool copiesAtOnce() const { return t.whole || t.units(inner) <= t.depth; }
  int64_t copiedRows() const { return copies ? t.block : copiesLast ? t.rows : 0; }
  // Whether AMX's sums begin and end with one block of the inner dimension.
  bool sumsInTurns() const { return isTiled(t.products) && t.units(inner) <= t.depth; }
  int64_t rowsOfSums() const { return sumsInTurns() ? Completion::rowsInTurns : t.block * tiles(); }
  int64_t scratchBytes() const { return (copiedRows() * t.stride + rowsOfSums() * Tiling::group) * k.bytes(); }
  // How many groups share the prefetching of the next rows: the first ones of a chunk, or all of the product.
  int64_t turns() const { return isTiled(t.products) && t.whole ? (columns + Tiling::group - 1) / Tiling::group : 4; }

  // Copies x[row + begin .. row + end)[at .. at + elements) to the rows of scratch from `begin` on, if rows are copied.
  void copyRows(mlir::Value row, const Term &begin, mlir::Value end, const Term &at, int64_t elements) const {
    if (copies)
      copyRows(row, begin, end, at, elements, begin);
  }
  // The same from row `to` of scratch on, in any case.
  void copyRows(mlir::Value row, const Term &begin, mlir::Value end, const Term &at, int64_t elements,
                const Term &to) const;

  // Consumes a row's products: the first feature, a function that returns the vector of products from feature + i on
  // (static i), how many of the features are used, and how many there are to the next call's, or to the group's end.
  // Those of a group come at once or, by AMX, in two halves.
  using Vector = std::function<mlir::Value(int64_t i)>;
  using Finish = std::function<void(mlir::Value feature, const Vector &products, int64_t used, int64_t room)>;
  using Begin = std::function<Finish(mlir::Value row)>;
  // Rows that are read or written when sums are complete, which are prefetched before.
  struct Touched {
    View rows;
    bool writes;
  };

  // Multiplies the rows `row` .. row + count - 1 by the groups `group` .. end - 1 of columns, and prefetches the rows
  // from `next` on, which this thread processes next. If rows are copied at once (copiesAtOnce) and `holds` is true,
  // scratch has them already, so they are not copied again.
  void compute(mlir::Value row, mlir::Value count, mlir::Value group, mlir::Value end, mlir::Value next,
               const Begin &begin, llvm::ArrayRef<Touched> touched, mlir::Value holds = {}) const;
};

} // namespace xfc
