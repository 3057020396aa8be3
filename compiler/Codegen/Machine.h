// What a machine offers to kernels that have one body for every target: how rows are divided among chunks, and their
// features among lanes or threads.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"
#include "plan/Plan.h"
#include <memory>

namespace xfc {

// Results at one feature, given the operands there: numbers, or vectors of adjacent features, depending on the machine.
using Compute = std::function<Values(llvm::ArrayRef<mlir::Value>)>;
using ComputeOne = std::function<mlir::Value(llvm::ArrayRef<mlir::Value>)>;

// A row that is read several times: where it is in memory, or its features in registers of the threads that share it.
struct Row {
  View memory;
  Values registers;
};

// Rows of `width` features, each of which is visited several times by the lanes or threads that share it, and summed in
// an order that depends on the width alone.
class Rows {
public:
  explicit Rows(int64_t width) : width(width) {}
  virtual ~Rows() = default;
  const int64_t width;

  // Runs body(number of the row) for each row of this chunk. `buffers` are those that the body visits.
  virtual Partition each(llvm::ArrayRef<BufferIndex> buffers, const std::function<void(mlir::Value)> &body) = 0;
  // The row that begins at p.
  virtual Row load(const View &p) = 0;
  // Computes a row from others, and stores it at `to`.
  virtual void store(llvm::ArrayRef<Row> operands, const View &to, const ComputeOne &compute) = 0;
  // The sums over a row of each of the `count` numbers that `compute` returns; those that are null have none.
  virtual Values sums(int64_t count, llvm::ArrayRef<Row> operands, const Compute &compute) = 0;
  mlir::Value sum(llvm::ArrayRef<Row> operands, const ComputeOne &compute) {
    return sums(1, operands, [&](llvm::ArrayRef<mlir::Value> v) -> Values { return {compute(v)}; })[0];
  }
  // Runs `body` in one of the threads that share the row.
  virtual void once(const std::function<void()> &body) = 0;
};

// Rows that fit into registers, where a machine has many.
class ShortRows : public Rows {
public:
  using Rows::Rows;
  // The largest of the numbers that `compute` returns for a row, none of which is negative.
  virtual mlir::Value largest(llvm::ArrayRef<Row> operands, const ComputeOne &compute) = 0;
  // A row that is computed from others, and also stored at `to` unless that is null.
  virtual Row keep(llvm::ArrayRef<Row> operands, const View &to, const ComputeOne &compute) = 0;
  // Each chunk takes one of `parts` equal ranges of the rows: body(number of the row, totals), where `totals` are rows
  // of sums over what the chunk has visited, one for each of `sums`. In the end, they are in row `chunk` of these.
  using PartBody = std::function<void(mlir::Value, llvm::MutableArrayRef<Row>)>;
  virtual Partition eachOfPart(int64_t parts, llvm::ArrayRef<BufferIndex> buffers, llvm::ArrayRef<BufferIndex> sums,
                               const PartBody &body) = 0;
  // sums(), where `compute` is given the numbers of `totals`, too, and returns their new values after what is summed.
  virtual Values sumsAndTotals(int64_t count, llvm::ArrayRef<Row> operands, llvm::MutableArrayRef<Row> totals,
                               const Compute &compute) = 0;
};

// Rows as long as the vocabulary, which are read from memory at each visit.
class LongRows : public Rows {
public:
  using Rows::Rows;
  // maximum + log(sum of exp(x - maximum)) of a row, and its sum if it is wanted.
  virtual std::pair<mlir::Value, mlir::Value> logSumExp(const Row &row, bool withSum) = 0;
  // store(), where `compute` gets a number more after those of the operands: `there` at feature `column`, which may be
  // negative if there is none, and `elsewhere` at all others.
  virtual void storeExceptAt(mlir::Value column, mlir::Value there, mlir::Value elsewhere, llvm::ArrayRef<Row> operands,
                             const View &to, const ComputeOne &compute) = 0;
  // Subtracts from feature `column` of a row that has been stored at `to`.
  virtual void subtractAt(mlir::Value column, mlir::Value amount, const View &to) = 0;
};

// The pairs of a query with the keys of its sequence, for one head or for all of them.
class PairsRow {
public:
  virtual ~PairsRow() = default;
  mlir::Value head, query; // the head, and the query's row in its set
  mlir::Value keys;        // how many
  mlir::Value perHead;     // the pairs that the sequence has for each head

  // Where the row begins in a pairs value of so many heads, for this head or the first of all.
  virtual View in(BufferIndex buffer, int64_t heads) = 0;
  // Computes the row from others, and stores it at `to`.
  virtual void store(llvm::ArrayRef<View> operands, const View &to, const ComputeOne &compute) = 0;
  // The sum of what is computed for each key, which is also stored at `kept` unless that is null.
  virtual mlir::Value sum(llvm::ArrayRef<View> operands, const View &kept, const ComputeOne &compute) = 0;
  // The largest number of a row; `least` if all are below it.
  virtual mlir::Value largest(const View &row, double least) = 0;
  // Stores zeros. What is stored at single keys afterwards, comes afterwards.
  virtual void clear(const View &row) = 0;
  // Stores the numbers of a row at the keys that the query sees, and `hidden` at the others; or each times its random
  // dropout factor (abi.h).
  virtual void storeSeen(const View &from, double hidden, const View &to) = 0;
  virtual void storeDropped(const View &from, double rate, const View &to) = 0;
  // Spreads the numbers 0 .. count - 1, or those of the keys, over the threads that share the row: body(number). The
  // sum is that of what body returns.
  virtual void each(const Term &count, const std::function<void(mlir::Value)> &body) = 0;
  virtual mlir::Value sumOfEach(int64_t count, const std::function<mlir::Value(mlir::Value)> &body) = 0;
  // The distance between a key and the query, and 1 if the key comes after the query, else 0.
  virtual std::pair<mlir::Value, mlir::Value> distanceOf(mlir::Value key) = 0;
  // Runs `body` in one of the threads that share the row.
  virtual void once(const std::function<void()> &body) = 0;
};

// A row of a sequence that is scanned, and the columns that a machine takes together.
class ScannedRow {
public:
  virtual ~ScannedRow() = default;
  virtual mlir::Value load(const View &rows) = 0;
  virtual mlir::Value loadPrevious(const View &rows) = 0; // of the row before it in its sequence, or 0
  virtual void store(mlir::Value x, const View &rows) = 0;
};

// The lanes or threads over which the elements of a tensor are spread.
class Spread {
public:
  virtual ~Spread() = default;
  // Runs body(i, mask, state) for the elements from .. to - 1. The mask is that of the lanes that have an element, and
  // null if all do.
  using Body = std::function<Values(mlir::Value, mlir::Value, Values)>;
  virtual Values each(mlir::Value from, mlir::Value to, mlir::ValueRange state, const Body &body) = 0;
  virtual mlir::Value load(const View &p, mlir::Value mask) = 0; // 0 in the other lanes
  virtual void store(mlir::Value x, const View &p, mlir::Value mask) = 0;
  // The sum over all lanes, or threads, of a state that began as zeros().
  virtual mlir::Value zeros() = 0; // f64
  virtual mlir::Value sum(mlir::Value x) = 0;
  // The sum, in f64, of the squares of a dense block's elements from .. to - 1; and, in a kernel of one chunk, that of
  // the f64 of dense blocks, each of which is given with its number of elements.
  virtual mlir::Value sumOfSquares(const View &block, mlir::Value from, mlir::Value to) = 0;
  virtual mlir::Value sumOfBlocks(llvm::ArrayRef<std::pair<View, int64_t>> blocks) = 0;
  // Runs `body` in one of the threads.
  virtual void once(const std::function<void()> &body) = 0;
};

class Machine : public CodeBuilder {
public:
  using CodeBuilder::CodeBuilder;

  // Where a row begins, and whether it counts (null if it always does): the features of one that does not are 0,
  // though memory is read.
  struct RowStart {
    RowStart(const View &first, mlir::Value counts = {}) : first(first), counts(counts) {}
    View first;
    mlir::Value counts;
  };
  // Computes each feature of the rows of the last buffer from the same feature of the others. A row begins where
  // `start` says for the buffer, its rows and the number of the row, or else where the buffer has that row.
  using StartOfRow = std::function<RowStart(BufferIndex, const View &, mlir::Value)>;
  virtual Partition overRows(int64_t width, llvm::ArrayRef<BufferIndex> buffers, const ComputeOne &compute,
                             const StartOfRow &start = {}) = 0;
  // Multiplies each feature of rows by its random dropout factor (abi.h).
  virtual Partition dropRows(int64_t width, BufferIndex from, double rate, BufferIndex to) = 0;
  // Each chunk computes a row of `sums`, a dense tensor: adds up those of the rows rowOf(0) .. rowOf(count - 1) of
  // `buffer` that count, in this order. Each says whether it does: `counts` is never null.
  virtual Partition sumRows(BufferIndex buffer, mlir::Value count, const std::function<RowStart(mlir::Value)> &rowOf,
                            mlir::TypedValue<mlir::RankedTensorType> sums) = 0;

  // Each chunk has some columns of `rows` rows, and computes sums of each column that are stored in dense results,
  // except those that are null: add(what ofRow(row) returns, the operands' numbers in the row, sums) returns the sums
  // after it.
  using OfRow = std::function<Values(mlir::Value)>;
  using AddToSums = std::function<Values(const Values &, llvm::ArrayRef<mlir::Value>, llvm::ArrayRef<mlir::Value>)>;
  virtual Partition sumColumns(int64_t width, mlir::Value rows, llvm::ArrayRef<View> operands,
                               llvm::ArrayRef<mlir::Value> results, const OfRow &ofRow, const AddToSums &add) = 0;

  // Runs the body for each query of a head of a sequence, which is a chunk. If `cached`, the keys are the tokens of a
  // hypothesis, whose positions are their numbers. With one head, the rows may be those of all heads. A query sees only
  // keys at most `reach` positions away, if it is given.
  virtual Partition eachPairsRow(int64_t heads, bool cached, const std::function<void(PairsRow &)> &body,
                                 std::optional<uint64_t> reach = {}) = 0;
  // Runs body(row, column) for rows from .. to - 1 of `columns` columns each.
  virtual void eachOfGrid(mlir::Value from, mlir::Value to, int64_t columns,
                          const std::function<void(mlir::Value, mlir::Value)> &body) = 0;

  // Computes elements of dense blocks from the same elements of all of them, and stores those that are not null, the
  // first block's last. Elements from .. to - 1 are the chunk's.
  virtual void update(llvm::ArrayRef<View> blocks, mlir::Value from, mlir::Value to, const Compute &compute) = 0;

  // Scans the rows of each sequence in ascending order, or `backwards`: step(row, what `load` has returned for it,
  // state) returns the state after a row, given the state before it, which is 0 at the beginning.
  using LoadRow = std::function<Values(ScannedRow &)>;
  using ScanStep = std::function<mlir::Value(ScannedRow &, const Values &, mlir::Value)>;
  virtual Partition scan(int64_t width, bool backwards, const LoadRow &load, const ScanStep &step) = 0;

  // Tensors of which a chunk has some rows. overChunk() spreads elements over all of a chunk's threads, and overRow()
  // over those that take a row; eachRow() runs body(row, state) for rows from .. to - 1, each in the threads of
  // overRow(). takesRowsInOrder() tells whether the same threads take all of them, in ascending order.
  virtual std::unique_ptr<Spread> overChunk() = 0;
  virtual std::unique_ptr<Spread> overRow() = 0;
  virtual Values eachRow(mlir::Value from, mlir::Value to, mlir::ValueRange state,
                         const std::function<Values(mlir::Value, Values)> &body) = 0;
  virtual bool takesRowsInOrder() const = 0;

  virtual std::unique_ptr<ShortRows> shortRows(int64_t width) = 0;
  virtual std::unique_ptr<LongRows> longRows(int64_t width) = 0;
};

} // namespace xfc
