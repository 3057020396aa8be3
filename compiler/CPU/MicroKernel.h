// The innermost product: rows of a left operand times panels of a packed right one, by the instructions that the
// set has for the type it multiplies in.
#pragma once

#include "Dialect/XFC.h"
#include "KernelBuilder.h"

namespace xfc {

// How a product is computed, and so what its operands look like in memory. The inner dimension is cut into units: an
// element, a pair of neighbours (2u, 2u + 1) as bf16 in a word of 4 bytes, the first in its low half, or four as int8.
enum class Products {
  Elements, // multiply-adds of the element type: units are elements
  Widened,  // bf16 by multiply-adds of f32: right pairs are widened in registers, left ones come as rounded f32
  Pairs,    // bf16 by AVX512-BF16: pairs on both sides
  Tiles,    // bf16 by AMX: the same, in whole tiles of 16 units
  Quads,    // int8 by AVX2 or AVX-512: left units are a word of signs and one of magnitudes
  Dots,     // int8 by VNNI, unsigned bytes times signed ones: left integers are stored as q + 128
  DotTiles, // int8 by AMX: the same, in whole tiles of 16 units
};

// What the set's best instructions for a compute type are. A gradient of a weight rounds its left operand while it
// transposes it, so there each is as good as the plainer one below.
Products productsFor(const KernelBuilder &k, std::optional<ComputeType> compute);
constexpr bool isInt8(Products products) { return products >= Products::Quads; }
constexpr bool isTiled(Products products) { return products == Products::Tiles || products == Products::DotTiles; }
Products gradientProductsFor(const KernelBuilder &k, std::optional<ComputeType> compute);

// Sizes of a product on a target. A word is of the element type's size.
struct Tiling {
  Products products;
  int64_t pair;    // elements of a unit
  int64_t rows;    // of the micro-kernel: 6 x 2 vectors fill 16 registers, 6 x 4 fill 32; 2 x 2 tiles fill 8
  int64_t vectors; // of a row of a panel
  int64_t panel;   // columns of the micro-kernel
  int64_t block;   // rows of a chunk
  int64_t depth;   // units of a block
  int64_t left;    // words of a unit of the left operand
  int64_t stride;  // words of a row in scratch, where rows are copied: not a power of two, so that rows spread over the
                   // cache's sets
  // Panels come in groups of 64 columns, as dropout's random numbers do.
  static constexpr int64_t group = 64;

  Tiling(KernelBuilder &k, int64_t inner, Products products);
  int64_t panels(int64_t n) const { return (n + panel - 1) / panel; }
  int64_t unit() const { return std::max<int64_t>(1, group / panel); } // panels of a group
  int64_t units(int64_t inner) const;
  mlir::Value units(KernelBuilder &k, mlir::Value inner) const;
  // Units that a micro-kernel takes each time around.
  int64_t around() const { return 4 / left; }
  // Tiles of a block's rows that fetch, at most: four for each vector of a panel are enough for the next panel, a
  // vector for every fourth unit.
  int64_t fetchingTiles() const { return std::min(block / rows, 4 * vectors); }
  // Words of a packed panel, and of a row in scratch before its scale (Int8.h).
  int64_t panelWords(int64_t inner) const;
  int64_t scaleAt() const { return stride - 16; }
};

// Operands of multiplyPanels; distances are in words. Rows of the left one lie `row` apart, or 1 where there is none,
// its units `unit`; `tile` is from one micro-kernel's rows to the next's.
struct Left {
  mlir::Value from, row;
  int64_t unit;
  mlir::Value tile;
};
// Panels of the right one lie `stride` apart. Where there is `unpacked`, the one panel is not there yet: the first tile
// of rows, a whole one, makes it from rows of elements `unpackedStride` apart while it multiplies.
struct Right {
  mlir::Value from, stride, unpacked, unpackedStride;
};

// What is fetched while the micro-kernel works on a tile of its rows and a panel, so that the latency of memory is
// hidden.
using Ahead = std::function<void(mlir::Value tile, int64_t panel)>;

// Rows that are fetched while the tiles of the first panel are multiplied, within the micro-kernel, a pair of lines
// each time around: what comes between two micro-kernels waits, and what comes within one does not. (Those of AMX fetch
// nothing, so there it comes between.)
struct FetchedRows {
  int64_t across;                                     // pairs of lines of a row
  int64_t rows;                                       // that a tile fetches
  mlir::Value tiles;                                  // that fetch some
  std::function<mlir::Value(mlir::Value tile)> first; // of the rows of the tile with this number among these
  mlir::Value stride;

  // Fetches `all` rows of `columns` elements (both static) from `from` on, by at most `most` tiles, after `begin`
  // others, during `depth` units.
  FetchedRows(KernelBuilder &k, const Tiling &t, mlir::Value from, mlir::Value stride, int64_t all, int64_t columns,
              mlir::Value begin, int64_t most, int64_t depth);
  // How many tiles that takes, where a block is as deep as it can be.
  static int64_t tilesFor(const KernelBuilder &k, const Tiling &t, int64_t all, int64_t columns);
};

// `panels` (static) panels of b for `count` rows of a; c rows lie `cStride` apart. `depth` counts units. With
// `accumulate` what stands in c comes first. With `fetchNext` the first whole tiles of rows fetch a part of the panel
// that follows theirs (not those of AMX): weights come from far away, and where a page ends the hardware stops
// fetching. `fetched` is fetched as well, except for few tiles of rows with `fetchNext`: there the next panel takes all
// that can be fetched.
void multiplyPanels(KernelBuilder &k, const Tiling &t, const Left &a, const Right &b, int64_t panels, mlir::Value depth,
                    mlir::Value c, mlir::Value cStride, mlir::Value count, mlir::Value accumulate, const Ahead &ahead,
                    bool fetchNext = false, llvm::ArrayRef<FetchedRows> fetched = {});

// `elements` (static) of a row of f32 as a row of the left operand in another form, zeros to the end of the last unit.
void copyLeft(KernelBuilder &k, const Tiling &t, mlir::Value from, mlir::Value to, int64_t elements);
// A vector of f32 rounded to the nearest bf16, ties to even, as f32; and two as a vector of pairs.
mlir::Value roundToBF16(KernelBuilder &k, mlir::Value x);
mlir::Value pairOfBF16(KernelBuilder &k, mlir::Value first, mlir::Value second);

} // namespace xfc
