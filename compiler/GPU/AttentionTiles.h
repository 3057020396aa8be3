// Building blocks of the attention kernels: the work of a block of threads, tiles in shared memory, and their products.
#pragma once

#include "Codegen/AttentionHead.h"
#include "Codegen/Softmax.h"
#include "KernelBuilder.h"
#include "Warpgroup.h"
#include "plan/Plan.h"
#include <functional>
#include <utility>

namespace xfc::gpu {

// Row j (i32) of a matrix, whose rows may be anywhere.
using RowAt = std::function<View(mlir::Value)>;

// The head of a sequence that a block, or a part of it, has. Its small numbers are i32.
struct HeadOfSequence : AttentionHead {
  HeadOfSequence(KernelBuilder &k, mlir::Value sequence, mlir::Value head) : AttentionHead(k, k.i32, sequence, head) {}

  // The head's features in consecutive rows from query `from` on, and in the rows of the key list from key `from` on,
  // each times its row's scale of the head, if there are scales.
  RowAt rows(KernelBuilder &k, BufferIndex buffer, int64_t width, mlir::Value from);
  RowAt listedRows(KernelBuilder &k, BufferIndex buffer, int64_t width, mlir::Value from,
                   std::optional<BufferIndex> scales = {});
  // The start of the first block of `size` keys of which any query from `query` on sees a key.
  mlir::Value firstBlock(KernelBuilder &k, mlir::Value query, int64_t size);
  // The largest limit of queries from .. from + count - 1, of which there are at most `most`. Every lane gets it.
  mlir::Value largestLimit(KernelBuilder &k, mlir::Value from, mlir::Value count, int64_t most);
  // Clears rows of the sequence that are not keys: those between each of the keys start .. start + count - 1 and the
  // key before it (lists ascend), and those after the list's last key. `buffers` are rows of the key set, with their
  // features per head. Only if each sequence has its own keys (training).
  void clearRowsThatAreNoKeys(KernelBuilder &k, mlir::Value start, mlir::Value count,
                              llvm::ArrayRef<std::pair<BufferIndex, int64_t>> buffers);
};

// A chunk is one head of a sequence: runs body(head), or body(head, query) with one warp for each of its queries (i32).
Partition eachHead(KernelBuilder &k, int64_t heads, const std::function<void(HeadOfSequence &)> &body);
Partition eachQuery(KernelBuilder &k, int64_t heads, const std::function<void(HeadOfSequence &, mlir::Value)> &body);

// Runs body(sequence and head, first query of the block) for blocks of `size` queries, counted from the first of their
// sequence: for those that begin in rows part * size .. part * size + size - 1 of the set. As the parts cover all rows,
// each block has one owner, a long sequence is spread over several parts, and short ones share a part.
using QueryBlockBody = std::function<void(HeadOfSequence &, mlir::Value)>;
void eachQueryBlockOfRows(KernelBuilder &k, mlir::Value part, mlir::Value head, int64_t size,
                          const QueryBlockBody &body);

// Rows in shared memory, padded with zeros.
struct Tile {
  View data;                               // f32, or bf16 as i16
  int64_t rows = 0, width = 0, stride = 0; // width and stride in elements, or the length of a warpgroup's line
};

// The hardware that multiplies tiles. `Threads` use fused multiply-adds of f32. The others are tensor cores, whose
// operands are rounded to bf16: `Warp` is mma.sync, a product for each warp; `Warpgroup` is wgmma, one product for all
// four warps of a block, which needs rows that are stored in bf16.
enum class Core { Threads, Warp, Warpgroup };

// Products of tiles. Whatever multiplies, a warp has 16 rows of a product in the layout of mma.sync: lane l has rows
// l / 4 and l / 4 + 8 and, of every 8 columns, columns 2 (l % 4) and the next. These are four numbers per 8 columns,
// the upper row's first.
//
// The rows that are computed together ("joint") are those of a warp, or, by a warpgroup, all rows of the block. A
// condition around a product must have the same value in all threads that have such rows.
class AttentionTiles {
public:
  AttentionTiles(KernelBuilder &k, Core core = Core::Threads) : k(k), core(core), bf16(core != Core::Threads) {}
  static constexpr int64_t warpRows = 16;

  // The core for products of these rows, with their features for a head. A thread keeps `columns` / 2 sums of them.
  static Core coreOf(KernelBuilder &k, bool bf16, int64_t columns,
                     llvm::ArrayRef<std::pair<BufferIndex, int64_t>> rows);

  int64_t padded(int64_t features) const;
  Tile tile(int64_t rows, int64_t features) const;
  int64_t bytesOf(int64_t rows, int64_t features) const;
  Tile tiles(int64_t stages, int64_t rows, int64_t features) const; // the first of `stages` (ofStage)

  // Fills rows 0 .. count - 1 of the tile from `row`, and the rest with zeros. `buffer` is the buffer that `row` points
  // into. All threads of the block take part.
  void copyIn(const Tile &tile, const RowAt &row, mlir::Value count, BufferIndex buffer, int64_t features);

  // Whether the rows of the buffer are what a tile holds, so that they need not pass through registers.
  bool isDirect(BufferIndex buffer, int64_t features) const;
  // The same as copyIn(), but if the rows are direct, the tile has them only after finishCopies(), which waits for all
  // copies that the block's threads have started and ends with a barrier.
  void startCopy(const Tile &tile, const RowAt &row, mlir::Value count, BufferIndex buffer, int64_t features);
  void finishCopies();
  void waitForCopies(); // of this thread
  void finishStores();  // the barrier after which products see what the block's threads have stored in tiles

  // Walks over the blocks of `size` at from, from + size, .. < end (i32): copy(first, stage) fills the tiles of a stage
  // by startCopy(), and use(first, stage, state) returns the next state. With two `stages` (i32 0 and 1), the next
  // block is being copied while one is used. Copies that were started before the walk are complete when it uses its
  // first block. The caller's barrier ends earlier uses of the tiles, which are free again after a barrier.
  Values eachBlock(mlir::Value from, mlir::Value end, int64_t size, int64_t stages, const Values &state,
                   const std::function<void(mlir::Value, mlir::Value)> &copy,
                   const std::function<Values(mlir::Value, mlir::Value, Values)> &use);
  // A tile of a stage, of tiles that follow each other in memory.
  Tile ofStage(const Tile &first, mlir::Value stage) const;

  // Fills the tile from a block of a pairs value, or from its transpose, and the rest with zeros. The block has `rows`
  // and `columns` (i32). f32 only.
  void copyPairs(const Tile &tile, const View &from, mlir::Value rows, mlir::Value columns, bool transposed);

  // The left operand of a product: rows of a tile, or of an earlier product.
  struct Left {
    Left(const Tile &tile) : tile(tile) {}
    // In f32, the warp stores the product in its own rows of the tile `room`; bf16 does not use it.
    static Left rowsOf(Values product, const Tile &room) {
      Left left(room);
      left.product = std::move(product);
      return left;
    }
    // Columns of a tile, as rows. bf16 only.
    static Left columnsOf(const Tile &tile) {
      Left left(tile);
      left.transposed = true;
      return left;
    }
    Tile tile;
    Values product; // if not empty, the operand, which is then in registers and not in the tile
    bool transposed = false;
  };
  struct Product {
    Left a;
    Tile b;
    bool transposed;                 // a b^T instead of a b: b's rows are the columns of the result
    std::function<void(Values)> use; // gets the result
    Values sums = {};                // what is added to it
    mlir::Value depth = {};          // of a b, only so many rows of b (i32) matter; the others must be zeros
    int64_t columns() const { return transposed ? b.rows : b.width; }
  };
  // Computes products and uses them in order: each before the next one is computed, except by a warpgroup, which
  // computes all of them together. Then all or none of them have sums.
  void multiply(llvm::ArrayRef<Product> products);

  // Stores the warp's rows of a product in a tile. bf16 only.
  void store(const Values &product, const Tile &tile);

  Values zeros(int64_t columns) const { return Values(columns / 8 * 4, k.scalar(0)); }
  // One product: a b^T; c + a b, or a b if c is empty.
  Values productTransposed(const Left &a, const Tile &b);
  Values product(Values c, const Left &a, const Tile &b, mlir::Value depth);
  // A product of queries and keys times `scale` log2(e): scores of which exponentials are powers of two.
  Values scores(Values product, double scale);

  // The position in the block of the lane's row `which` (0 or 1), and the column of the lane's number i (i32).
  mlir::Value firstRow();      // of the warp
  mlir::Value firstJointRow(); // of those that are computed together
  mlir::Value row(int64_t which);
  mlir::Value column(int64_t i);
  static int64_t rowOf(int64_t i) { return i % 4 / 2; }
  static int64_t columnOf(int64_t i) { return i / 4 * 8 + i % 2; } // relative to column(0)
  // Reductions over the four lanes that share a row. Every one of them gets the result.
  mlir::Value rowSum(mlir::Value v) { return k.warpSum(v, 4); }
  mlir::Value rowMax(mlir::Value v) { return k.warpMax(v, 4); }
  // The largest value of the warp's rows, given those of the lane's two rows.
  mlir::Value largestOfRows(const std::array<mlir::Value, 2> &values);
  // The same for the rows that are computed together, given the largest value of the block.
  mlir::Value largestOfJointRows(const std::array<mlir::Value, 2> &values, mlir::Value ofBlock);

  // Writes the lane's part of a product's rows below `count`, each number times its row's `factor`.
  void copyOut(const RowAt &row, const Values &product, mlir::Value count, BufferIndex buffer, int64_t features,
               const std::array<mlir::Value, 2> &factor);

  // The same, without factors, for a block of a pairs value.
  void copyOutPairs(const View &to, const Values &product, mlir::Value rows, mlir::Value columns);

  void syncWarp() { k.ptx("bar.warp.sync 0xffffffff;", {}, {}); }

private:
  Values multiplyByThreads(const Product &product, const Values &c);
  Values multiplyByWarp(const Product &product, Values c);
  Values packed(const Values &product); // for mma.sync and wgmma
  View at(const Tile &tile, mlir::Value row, mlir::Value column) const;
  View further(const Tile &tile, const View &from, int64_t rows,
               int64_t columns) const; // an immediate offset, which takes no register
  mlir::Type elementType() const;

  KernelBuilder &k;
  const Core core;
  const bool bf16;
};

// The bias of a table [distances, H*2] (xfc.distance_bias).
class DistanceTable {
public:
  DistanceTable(KernelBuilder &k, BufferIndex table, mlir::Type type);
  // The table of an op, if it has one.
  template <typename Op> static std::optional<DistanceTable> of(KernelBuilder &k, Op op) {
    if (!op.getBias())
      return std::nullopt;
    return DistanceTable(k, op.getBiasMutable(), op.getBias().getType());
  }
  // The entry for a key `distance` positions (i32) after the query, or before it if negative. Distances beyond the
  // table, which may occur for numbers that no pair uses, get its last entry.
  mlir::Value entry(const HeadOfSequence &at, mlir::Value distance);

private:
  KernelBuilder &k;
  const BufferIndex table;
  const int64_t distances, width; // of the table
};

// The bias for a warp's numbers of a product of queries and keys. Emits no code if the op has no table.
//
// Usually (without pad tokens among the keys), both the rows and the columns of a block of pairs are at consecutive
// positions. Its pairs then have at most rows + columns - 1 distances, whose entries are kept in shared memory.
class PairBias {
public:
  enum class Rows { queries, keys }; // the columns are the other
  PairBias(KernelBuilder &k, AttentionTiles &tiles, std::optional<DistanceTable> table, Rows rowsAre, int64_t rows,
           int64_t columns);

  // Loads the entries for the block that begins at this query and key and has `count` keys (i32). All threads of the
  // block take part. A barrier must separate it from add() for the block before; it ends with one if there is a table.
  void copyIn(HeadOfSequence &at, mlir::Value query, mlir::Value key, mlir::Value count);
  // Adds log2(e) times the bias to scores, which are scaled by log2(e), too.
  void add(HeadOfSequence &at, Values &scores);

private:
  KernelBuilder &k;
  AttentionTiles &tiles;
  std::optional<DistanceTable> table;
  const Rows rowsAre;
  const int64_t rows, columns;
  View line; // entry i is for rows and columns i - (columns - 1) apart
  // In the current block: the positions of the first query and the first key, the first and the last key, and whether
  // the keys have consecutive positions (null if they always do).
  mlir::Value queryPosition, keyPosition, firstKey, lastKey, consecutive;
};

// Dropout (abi.h) of a warp's numbers of a product of queries and keys. Emits no code if the rate is 0.
class PairDropout {
public:
  PairDropout(KernelBuilder &k, AttentionTiles &tiles, const HeadOfSequence &at, double rate);

  // A bit for each number of the lane: 1 if the pair is kept. For ofQueries, rows are queries (numbered within their
  // sequence) and columns are `count` keys from `firstKey` on; for ofKeys, rows are keys and columns are queries. Bits
  // of pairs beyond the sequence's queries and keys are arbitrary.
  mlir::Value ofQueries(const std::array<mlir::Value, 2> &queries, mlir::Value firstKey, mlir::Value count,
                        int64_t columns);
  mlir::Value ofKeys(const std::array<mlir::Value, 2> &keys, mlir::Value firstQuery, mlir::Value count,
                     int64_t columns);
  // x if number i is kept, else 0. Kept numbers must still be multiplied by scale().
  mlir::Value dropped(mlir::Value x, mlir::Value bits, int64_t i);
  mlir::Value scale(); // 1/(1-rate), or 1 when not training

private:
  mlir::Value whenTraining(const std::function<Values()> &bits);
  // The words of one call of Philox: for the eight positions in the key position's block of 64 that are equal to it
  // modulo 8.
  std::array<mlir::Value, 4> four(mlir::Value query, mlir::Value key);
  mlir::Value bit(mlir::Value number, mlir::Value which); // set if the pair is kept

  KernelBuilder &k;
  AttentionTiles &tiles;
  const HeadOfSequence &at;
  const double rate;
  CodeBuilder::DropoutKey dropoutKey;
};

} // namespace xfc::gpu
