// What the attention kernels are made of: the work of a block of threads, tiles in shared memory, and their products by
// warps.
#pragma once

#include "Codegen/KeyPositions.h"
#include "Codegen/Softmax.h"
#include "KernelBuilder.h"
#include "plan/Plan.h"
#include <functional>

namespace xfc::gpu {

// Address of row j (i32) of a matrix, wherever its rows lie.
using RowAt = std::function<mlir::Value(mlir::Value)>;

// A head of a sequence of queries and its keys.
struct HeadOfSequence {
  HeadOfSequence(KernelBuilder &k, mlir::Value sequence, mlir::Value head);
  mlir::Value sequence, head;      // i64
  mlir::Value keyHead;             // of keys and values (i64); `head` unless several heads of queries share one
  mlir::Value firstQuery, queries; // a row of the query set, and how many there are (i32)
  mlir::Value keyList, keys;       // row numbers in the key set (i32), and how many (i32)
  mlir::Value limits;              // i32, of `firstQuery` on

  // Features of this head in consecutive rows from query `from` on, and in rows that the list names from `from` on.
  RowAt rows(KernelBuilder &k, BufferIndex buffer, int64_t width, mlir::Value from);
  RowAt listedRows(KernelBuilder &k, BufferIndex buffer, int64_t width, mlir::Value from);
  // `head` is one of queries, of which `sharing` in a row share a head of keys.
  void shareKeys(KernelBuilder &k, int64_t sharing);
  // `head` is one of keys: `body` for each of the `sharing` heads of queries that share it, ascending.
  Values eachSharing(KernelBuilder &k, int64_t sharing, const Values &state, const std::function<Values(Values)> &body);
  // From here on queries see only keys at most so many positions away, if it is given. `cached`: the keys are the
  // tokens of a hypothesis, whose positions are their places in the list, wherever in the cache they are.
  void setReach(KernelBuilder &k, std::optional<uint64_t> distance, bool cached);
  // Finds out what keysBefore() needs; once is enough. setReach() with a distance does it.
  void locateKeys(KernelBuilder &k);

  // A query sees the keys from first() to limit() - 1 of the list (i32).
  mlir::Value first(KernelBuilder &k, mlir::Value query);
  mlir::Value limit(KernelBuilder &k, mlir::Value query);
  // The same of the first block of `size` keys that one of the queries from `query` on sees a key of.
  mlir::Value firstBlock(KernelBuilder &k, mlir::Value query, int64_t size);
  // The largest limit of queries from .. from + count - 1, in every lane of a warp; at most `most` of them.
  mlir::Value largestLimit(KernelBuilder &k, mlir::Value from, mlir::Value count, int64_t most);
  // Zeros in rows of the sequence that are no key: those between keys start .. start + count - 1 and the one before,
  // and after the last (lists ascend). `buffers` are rows of the key set with this many features a head. Only where
  // each sequence has its own keys (training).
  void clearRowsThatAreNoKeys(KernelBuilder &k, mlir::Value start, mlir::Value count,
                              llvm::ArrayRef<std::pair<BufferIndex, int64_t>> buffers);
  // The block of a pairs value, and a query's row in it.
  mlir::Value pairs(KernelBuilder &k, BufferIndex buffer, int64_t heads);
  mlir::Value pairsRow(KernelBuilder &k, mlir::Value block, mlir::Value query);
  // Positions of a query and of a key in their sequence (i32).
  mlir::Value queryPosition(KernelBuilder &k, mlir::Value query), keyPosition(KernelBuilder &k, mlir::Value key);
  // How many keys are at positions before this one.
  mlir::Value keysBefore(KernelBuilder &k, mlir::Value position);

  bool cached = false;
  std::optional<int32_t> reach;

private:
  KeyPositions positions; // once they are located
};

// A chunk is a head of a sequence: body(it), or body(it, query) for each of its queries (i32), a warp each.
Partition eachHead(KernelBuilder &k, int64_t heads, const std::function<void(HeadOfSequence &)> &body);
Partition eachQuery(KernelBuilder &k, int64_t heads, const std::function<void(HeadOfSequence &, mlir::Value)> &body);

// Blocks of `size` queries, counted from the first of their sequence: body(sequence and head, first query of the
// block). Those that begin in rows part * size .. part * size + size - 1 of the set: with parts of all rows each block
// has one owner, sequences of any length keep as many threads busy as they need, and short ones share a part.
using QueryBlockBody = std::function<void(HeadOfSequence &, mlir::Value)>;
void eachQueryBlockOfRows(KernelBuilder &k, mlir::Value part, mlir::Value head, int64_t size,
                          const QueryBlockBody &body);

// Rows in shared memory, padded with zeros.
struct Tile {
  mlir::Value data;
  int64_t rows, width, stride; // elements of f32, or of bf16
};

// Products of tiles, with numbers as they are (fused multiply-adds) or rounded to bf16 (tensor cores). A warp has 16
// rows of a product, as mma.sync lays them out: lane l has rows l / 4 and l / 4 + 8, and of every 8 columns 2 (l % 4)
// and the next: four numbers of each 8 columns, the upper row's first.
class AttentionTiles {
public:
  AttentionTiles(KernelBuilder &k, bool bf16) : k(k), bf16(bf16) {}
  static constexpr int64_t warpRows = 16;

  int64_t padded(int64_t features) const;
  Tile tile(int64_t rows, int64_t features) const;
  int64_t bytesOf(int64_t rows, int64_t features) const;

  // Rows 0 .. count - 1 of the tile, from `row`, times `factor` if there is one, and zeros in the rest. `buffer` is
  // where they are. By all threads.
  void copyIn(const Tile &tile, const RowAt &row, mlir::Value count, BufferIndex buffer, int64_t features,
              mlir::Value factor = {});

  // A block of a pairs value, of rows and columns (i32), rows `stride` (i64) elements apart, zeros in the rest; or the
  // block's transpose. f32 only.
  void copyPairs(const Tile &tile, mlir::Value from, mlir::Value stride, mlir::Value rows, mlir::Value columns,
                 bool transposed);

  // The left operand of a product: the warp's rows of a tile, or of a product.
  struct Left {
    Tile tile;
    Values packed; // registers of mma.sync instead
  };
  Left rowsOf(const Tile &tile) const { return {tile, {}}; }
  // `room` is a tile that other warps' rows are not touched in; it is not used in bf16.
  Left rowsOf(const Values &product, const Tile &room);

  Values zeros(int64_t columns) const { return Values(columns / 8 * 4, k.scalar(0)); }
  // c += a b^T, where b's rows are the columns of c.
  Values productTransposed(Values c, const Left &a, const Tile &b);
  // c += a b, of which `depth` rows of b (i32) count, the others being zeros.
  Values product(Values c, const Left &a, const Tile &b, mlir::Value depth);

  // From here on a lane's two rows are 16 apart instead of 8, and warps 2 n and 2 n + 1 have 32 rows together.
  void spreadRows() { rowsApart = 16; }
  // Row (0 or 1) of the lane among the block's, and column of number i in the lane's; i32.
  mlir::Value firstRow(); // of the warp
  mlir::Value row(int64_t which);
  mlir::Value column(int64_t i);
  static int64_t rowOf(int64_t i) { return i % 4 / 2; }
  static int64_t columnOf(int64_t i) { return i / 4 * 8 + i % 2; } // beside column(0)
  // The lanes that have a row together: reduced, every one has the result.
  mlir::Value rowSum(mlir::Value v) { return k.warpSum(v, 4); }
  mlir::Value rowMax(mlir::Value v) { return k.warpMax(v, 4); }
  // The largest of values that belong to rows.
  mlir::Value largestOfRows(const std::array<mlir::Value, 2> &values);

  // Writes the lane's part of rows: those below `count`, each number times `factor` of its row.
  void copyOut(const RowAt &row, const Values &product, mlir::Value count, BufferIndex buffer, int64_t features,
               const std::array<mlir::Value, 2> &factor);

  // The same for a block of a pairs value, whose rows are `stride` (i64) elements apart.
  void copyOutPairs(mlir::Value to, const Values &product, mlir::Value stride, mlir::Value rows, mlir::Value columns);

  void syncWarp() { k.ptx("bar.warp.sync 0xffffffff;", {}, {}); }

private:
  Values multiply(Values c, const Left &a, const Tile &b, bool transposed, mlir::Value depth);
  mlir::Value at(const Tile &tile, mlir::Value row, mlir::Value column) const;
  mlir::Value further(const Tile &tile, mlir::Value address, int64_t rows,
                      int64_t columns) const; // an offset of the instruction, no register
  mlir::Type elementType() const;

  KernelBuilder &k;
  const bool bf16;
  int64_t rowsApart = 8;
};

// The bias of a table [distances, H*2] (xfc.distance_bias).
class DistanceTable {
public:
  DistanceTable(KernelBuilder &k, BufferIndex table, mlir::Type type);
  // The one that an op has, or none.
  template <typename Op> static std::optional<DistanceTable> of(KernelBuilder &k, Op op) {
    if (!op.getBias())
      return std::nullopt;
    return DistanceTable(k, op.getBiasMutable(), op.getBias().getType());
  }
  // The entry for a key so many positions (i32) after the query, or before it where that is negative. What is beyond
  // the table's last distance, as numbers that no pair uses may be, has the last one's.
  mlir::Value entry(const HeadOfSequence &at, mlir::Value distance);

private:
  KernelBuilder &k;
  const BufferIndex table;
  const int64_t distances, width; // of the table
};

// The bias for a warp's numbers of a product of queries and keys. Where the op has no table, no code is made.
//
// The rows of a block of pairs are at consecutive positions, and so are its columns (the rule: no pad tokens among the
// keys): its pairs have no more than rows + columns - 1 distances. The entries of these are in shared memory.
class PairBias {
public:
  enum class Rows { queries, keys }; // and the columns are the others
  PairBias(KernelBuilder &k, AttentionTiles &tiles, std::optional<DistanceTable> table, Rows rowsAre, int64_t rows,
           int64_t columns);

  // For the block from these two on, with `count` keys (i32). By all threads, a barrier before add() and one after it.
  void copyIn(HeadOfSequence &at, mlir::Value query, mlir::Value key, mlir::Value count);
  // Adds log2(e) times the bias to scores that are multiplied by log2(e) themselves.
  void add(HeadOfSequence &at, Values &scores);

private:
  KernelBuilder &k;
  AttentionTiles &tiles;
  std::optional<DistanceTable> table;
  const Rows rowsAre;
  const int64_t rows, columns;
  mlir::Value line; // number i is for rows and columns i - (columns - 1) apart
  // The block's: positions of its first query and key, the keys, and whether these have consecutive positions; null
  // where they always have.
  mlir::Value queryPosition, keyPosition, firstKey, lastKey, consecutive;
};

// Dropout's random numbers for a warp's numbers of a product of queries and keys (abi.h). Where nothing is dropped, no
// code is made.
class PairDropout {
public:
  PairDropout(KernelBuilder &k, AttentionTiles &tiles, const HeadOfSequence &at, double rate);

  // A bit for each number of the lane: 1 where the pair is kept. Rows are queries (numbers of their sequence), columns
  // are `count` keys from `firstKey` on; or rows are keys, columns queries. What lies beyond the sequence's queries and
  // keys has any bit.
  mlir::Value ofQueries(const std::array<mlir::Value, 2> &queries, mlir::Value firstKey, mlir::Value count,
                        int64_t columns);
  mlir::Value ofKeys(const std::array<mlir::Value, 2> &keys, mlir::Value firstQuery, mlir::Value count,
                     int64_t columns);
  // x where number i is kept, else 0; what is kept has still to be multiplied by scale().
  mlir::Value dropped(mlir::Value x, mlir::Value bits, int64_t i);
  mlir::Value scale(); // 1/(1-rate), or 1 when not training

private:
  mlir::Value whenTraining(const std::function<Values()> &bits);
  // For the key's position and those 16, 32 and 48 further on within its block of 64: one call of Philox.
  std::array<mlir::Value, 4> four(mlir::Value query, mlir::Value key);
  mlir::Value word(const std::array<mlir::Value, 4> &words, mlir::Value key);
  mlir::Value kept(mlir::Value number);
  mlir::Value bit(mlir::Value number, mlir::Value which);
  mlir::Value queryPosition(mlir::Value query), keyPosition(mlir::Value key); // i32

  KernelBuilder &k;
  AttentionTiles &tiles;
  const HeadOfSequence &at;
  const double rate;
  CodeBuilder::DropoutKey dropoutKey;
};

} // namespace xfc::gpu
