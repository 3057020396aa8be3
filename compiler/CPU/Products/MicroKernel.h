// The innermost product: rows of a left operand times panels of a packed right operand, by the best instructions of the
// set for the compute type.
#pragma once

#include "CPU/Builder/KernelBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// How a product is computed, which determines the memory layout of its operands. The inner dimension is divided into
// units: an element; a pair of neighbors (2u, 2u + 1) as bf16 in a word of 4 bytes, the first in its low half; or four
// neighbors as int8.
enum class Products {
  Elements, // multiply-adds of the element type: units are elements
  Widened,  // bf16 by multiply-adds of f32: right pairs are widened in registers, left elements are rounded f32
  Pairs,    // bf16 by AVX512-BF16: pairs on both sides
  Tiles,    // bf16 by AMX: the same, in whole tiles of 16 units
  Quads,    // int8 by AVX2 or AVX-512: a left unit is a word of signs and one of magnitudes
  Dots,     // int8 by VNNI, unsigned bytes times signed ones: left integers are stored as q + 128
  DotTiles, // int8 by AMX: the same, in whole tiles of 16 units
  Nibbles,  // int4 by any of these sets but AMX: units are 64 elements, in two groups (Int4.h)
};

// The best form of products that the instruction set has for a compute type. A gradient of a weight rounds its left
// operand while copying it, so gradientProductsFor returns the simpler Elements for Widened.
Products productsFor(const KernelBuilder &k, std::optional<ComputeType> compute);
constexpr bool isInt8(Products products) { return products >= Products::Quads && products <= Products::DotTiles; }
// Whether products are of integers, whose rows are rounded as a whole.
constexpr bool isInteger(Products products) { return products >= Products::Quads; }
constexpr bool isTiled(Products products) { return products == Products::Tiles || products == Products::DotTiles; }
Products gradientProductsFor(const KernelBuilder &k, std::optional<ComputeType> compute);

// The tile sizes of a product on a target. A word has the size of the element type.
struct Tiling {
  Products products;
  int64_t pair;    // elements per unit
  int64_t rows;    // rows of the micro-kernel: 6 x 2 vectors fill 16 registers, 6 x 4 fill 32; 2 x 2 tiles fill 8
  int64_t vectors; // vectors per row of a panel
  int64_t panel;   // columns of the micro-kernel
  int64_t block;   // rows per chunk
  int64_t depth;   // units per block of the inner dimension
  bool whole;      // whether rows are copied to scratch as a whole, before all their products, not block by block
  bool byGroup;    // whether all blocks of the inner dimension are taken for a group of columns before the next group
  int64_t left;    // words per unit of the left operand
  int64_t stride;  // words per row in scratch, if rows are copied: not a power of two, so that rows spread over the
                   // cache's sets
  // Panels are processed in groups of 64 columns, for which dropout draws its random numbers together.
  static constexpr int64_t group = 64;

  Tiling(KernelBuilder &k, int64_t inner, Products products);
  int64_t panels(int64_t n) const { return (n + panel - 1) / panel; }
  int64_t unit() const { return std::max<int64_t>(1, group / panel); } // panels per group
  int64_t units(int64_t inner) const;
  mlir::Value units(KernelBuilder &k, mlir::Value inner) const;
  // The rows or columns of an AMX tile, and its units; and the most rows per chunk.
  static constexpr int64_t tile = 16, mostTiledRows = 256;
  // For rows that tiles read in place. Long ones, of which few would fit the second cache, are taken block by block of
  // the inner dimension instead: a block of many rows then meets all columns of a chunk before the next, and weights
  // pass once for all of these rows.
  void readInPlace();
  // Rows per chunk where their results stay in scratch; with more of them, the results would leave the cache.
  int64_t blockOfResults() const { return std::min(block, 6 * tile); }
  // Units that a micro-kernel processes per iteration.
  int64_t around() const { return std::max<int64_t>(4 / left, 1); }
  // The most tiles of a block's rows that prefetch. Four for each vector of a panel suffice for the next panel, at one
  // vector for every four units.
  int64_t fetchingTiles() const { return std::min(block / rows, 4 * vectors); }
  // How many of the next rows, of `rowBytes` bytes each, are prefetched while a block is multiplied.
  int64_t rowsAhead(int64_t rowBytes) const;
  // Words of a packed panel, and the offset of the scale in a row in scratch (Int8.h, Int4.h).
  int64_t panelWords(int64_t inner) const;
  int64_t scaleAt() const { return stride - 16; }
};

// While AMX multiplies tiles, the vector units are free. They can prepare what is multiplied next, a part in each step,
// between its products: rows of the left operand or a panel of the right one, but not both. Only for the form Tiles.
//
// While the first panel is multiplied, each of the first `tiles` tiles of rows converts the rows of the next tile,
// which must be whole, from rows of f32: those of the second tile begin at `from`. If `elements` is set, only so many
// elements of each row exist from there on, and zeros take the place of the others.
struct NextRows {
  View from;
  mlir::Value elements, tiles;
};
// Each of the first `tiles` tiles of rows (or of fewer, if not so many have at least 17 rows) packs `units` units in
// each step of 16 units, as packRight does, from rows of elements into a panel that begins at `to`.
struct NextPanel {
  View from, to;
  mlir::Value tiles;
  int64_t units = 0;
};

// Operands of multiplyPanels, in words. The left operand has `rows`, of which the number 1 as the stride says that they
// are adjacent; `unit` is the stride between units, and `tile` the stride between the rows of successive micro-kernels.
//
// If `last` is set (for Tiles only), the rows that do not fill a micro-kernel's rows lie there, since the memory after
// `rows` may belong to others. If `passes` is set, AMX loads the rows past the first cache, in which the panel stays:
// together, a panel and its rows would be more than it holds.
struct Left {
  View rows;
  int64_t unit;
  Term tile = mlir::Value();
  NextRows next = {};
  View last = {};
  bool passes = false;
};
// The right operand has `panels`. If `unpacked` is set, the panel, of which there is only one, is not packed yet: the
// first tile of rows, which must be whole, packs it while it multiplies, from these rows of elements.
//
// With vectors of floats or of int8, `after` is what is multiplied after the last panel, and is prefetched with it; if
// it is null, the panel that follows in memory is.
struct Right {
  View panels, unpacked = {};
  NextPanel next = {};
  View after = {};
};

// Configures the tiles of AMX, if products are by tiles, for a kernel that multiplies up to `count` rows at a time. It
// is called once in a kernel, before multiplyPanels; the tiles are released at the kernel's end. A kernel relies on
// nothing else, since a thread may begin with a configuration of the one that created it
// (tests/emulation/TileEmulator.h).
void configureTiles(KernelBuilder &k, const Tiling &t, mlir::Value count);

// Emits prefetches before the micro-kernel processes a tile of its rows and a panel, to hide the latency of memory.
using Ahead = std::function<void(mlir::Value tile, int64_t panel)>;

// What a kernel does with the sums of AMX's tiles once they are complete. The code that does this for a pair of tiles
// is emitted after the instructions that multiply the next pair, so that the vector units work on one pair while the
// next one is multiplied.
struct Completion {
  // Takes `rows` rows from `row` on of the panel `panel`.
  std::function<void(mlir::Value row, mlir::Value rows, mlir::Value panel, const View &sums)> finish;
  // Rows that `finish` reads or writes, of the same columns as the sums; a tile's are prefetched while it is summed.
  llvm::SmallVector<View> touched;
  // Whether sums begin and end with this call: they take turns in a few rows then (rowsInTurns), which stay in the
  // first cache. Otherwise, each row has its own.
  bool inTurns = false;
  static constexpr int64_t rowsInTurns = 3 * Tiling::tile;
};

// Rows that are prefetched while the tiles of the first panel are multiplied. The micro-kernel itself prefetches a pair
// of cache lines per iteration (that of AMX as many as the tiles' share takes), because prefetches between two
// micro-kernels stall and those within one do not.
struct FetchedRows {
  int64_t across;                              // pairs of cache lines per row
  int64_t rows;                                // rows that a tile prefetches
  mlir::Value tiles;                           // the number of tiles that prefetch
  std::function<View(mlir::Value tile)> first; // the first row that the tile with this index prefetches

  // Prefetches `all` rows of `bytes` bytes (both static), starting at `from`, with at most `most` tiles of `depth`
  // units each. `begin` tiles have prefetched the rows before them already. With AMX, the rows are spread evenly over
  // `turns` times `most` tiles.
  FetchedRows(KernelBuilder &k, const Tiling &t, const View &from, int64_t all, int64_t bytes, const Term &begin,
              int64_t most, int64_t depth, int64_t turns);
  // The number of tiles that this takes if a block has its full depth.
  static int64_t tilesFor(const Tiling &t, int64_t all, int64_t bytes);
};

// Multiplies `count` rows of a by `panels` (static) panels of b; `depth` counts units. With `accumulate`, sums start
// from the contents of c. With `fetchNext`, the first whole tiles of rows each prefetch a part of the next panel:
// weights come from far away, and the hardware stops prefetching at the end of a page. `fetched` is prefetched as well,
// except with `fetchNext` and few tiles of rows, where the next panel takes all the prefetches there are. Tiles of AMX
// must be configured; only they heed `completion`.
void multiplyPanels(KernelBuilder &k, const Tiling &t, const Left &a, const Right &b, int64_t panels, const Term &depth,
                    const View &c, mlir::Value count, mlir::Value accumulate, const Ahead &ahead,
                    bool fetchNext = false, llvm::ArrayRef<FetchedRows> fetched = {},
                    const Completion *completion = nullptr);

// Rows of bf16 as they are in memory, to be rearranged without a conversion; other rows as such.
View stored(KernelBuilder &k, const View &rows);
// Rows of elements as rows of words, which each hold two elements of bf16: an operand of tiles as it is.
View asWords(KernelBuilder &k, const View &rows);
// Copies `elements` (static) elements of a row into a row of the left operand in its form, padded with zeros to the end
// of the last unit.
void copyLeft(KernelBuilder &k, const Tiling &t, const View &from, const View &to, int64_t elements);
// The transposed left operand of a weight's gradient, in the form Tiles: copies `rows` rows of `columns` columns,
// starting at `from`, into a row of units for each column, starting at `to`, with zeros to the end of the last tile. If
// `sums` is given, the columns' sums there are continued in the order of the rows, before rounding. Reads and writes
// whole groups of 16 columns.
void transposeLeft(KernelBuilder &k, const Tiling &t, const View &from, mlir::Value rows, mlir::Value columns,
                   const View &to, const View &sums);
// A right operand whose rows are not weights: copies `rows` rows of elements, starting at `from`, into `panels` panels,
// starting at `to`, with zeros to the end of the last unit, and of the last tile. Elements that are no pairs are
// rounded to bf16 if `rounds` is set. Reads whole panels, or only the first `columns` columns if that is given.
void packRight(KernelBuilder &k, const Tiling &t, const View &from, mlir::Value rows, bool rounds, const View &to,
               const Term &panels, mlir::Value columns = {});
// A vector of units of two rows, rounded in the same way. The second row counts only in pairs.
mlir::Value unitsOf(KernelBuilder &k, const Tiling &t, mlir::Value first, mlir::Value second, bool rounds);
// roundToBF16 rounds a vector of f32 to the nearest bf16, ties to even, and returns it as f32; pairOfBF16 rounds two
// vectors and combines them into one of pairs, each of one element of both; and adjacentPairsOfBF16, for which there
// must be AVX512-BF16, into one of pairs of neighbors. With AVX512-BF16, denormal numbers become zeros.
mlir::Value roundToBF16(KernelBuilder &k, mlir::Value x);
mlir::Value pairOfBF16(KernelBuilder &k, mlir::Value first, mlir::Value second);
mlir::Value adjacentPairsOfBF16(KernelBuilder &k, mlir::Value first, mlir::Value second);

} // namespace xfc
