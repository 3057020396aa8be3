// Copies, transposes and small dense products over scratch, from which the attention kernels are made.
#pragma once

#include "Codegen/KeyPositions.h"
#include "KernelBuilder.h"
#include <functional>

namespace xfc {

// Address of row j of a matrix, wherever its rows lie.
using RowAt = std::function<mlir::Value(mlir::Value)>;

// The sequence and head of a chunk of attention, with chunk = sequence * heads + head.
struct HeadOfSequence {
  // `cached`: the keys are the tokens of a hypothesis, whose positions are their places in the list.
  HeadOfSequence(KernelBuilder &k, int64_t heads, bool cached = false);
  mlir::Value sequence, head;
  mlir::Value keyHead;             // of keys and values; `head` unless several heads of queries share one
  mlir::Value firstQuery, queries; // rows of the query set
  mlir::Value keyList, keys;       // row numbers in the key set (i32), and how many
  mlir::Value limits;              // i32, of `firstQuery` on

  // `head` is one of queries, of which `sharing` in a row share a head of keys.
  void shareKeys(KernelBuilder &k, int64_t sharing);
  // The chunk is a head of keys: runs `body` for each of the `sharing` heads of queries that share it, ascending.
  void eachSharing(KernelBuilder &k, int64_t sharing, const std::function<void()> &body);
  // From here on queries see only keys at most so many positions away, if it is given.
  void setReach(KernelBuilder &k, std::optional<uint64_t> distance);

  // A query i sees the keys from first(i) to limit(i) - 1 of the list. Less `from`, neither below 0.
  mlir::Value first(KernelBuilder &k, mlir::Value i, mlir::Value from);
  mlir::Value limit(KernelBuilder &k, mlir::Value i, mlir::Value from);
  // What of j, keys counted from the one that `first` and `limit` were counted from, is seen: else `hidden`.
  mlir::Value seen(KernelBuilder &k, mlir::Value j, mlir::Value first, mlir::Value limit, mlir::Value x,
                   mlir::Value hidden);
  // The largest limit of queries from .. from + count - 1.
  mlir::Value largestLimit(KernelBuilder &k, mlir::Value from, mlir::Value count);
  // Features of this head in consecutive rows from `first`, and in rows that a list names from `start` on.
  RowAt rows(KernelBuilder &k, BufferIndex buffer, int64_t width, mlir::Value first);
  RowAt listedRows(KernelBuilder &k, BufferIndex buffer, int64_t width, mlir::Value start);
  // Zeros in the key rows of this sequence, where some of them are in no list: only where each sequence has its own
  // keys (training), and `buffer` is rows of the key set.
  void clearRowsThatAreNoKeys(KernelBuilder &k, BufferIndex buffer, int64_t width);
  // The block of a pairs tensor.
  mlir::Value pairs(KernelBuilder &k, BufferIndex buffer, int64_t heads);
  // Positions of a query and of a key in their sequence.
  mlir::Value queryPosition(KernelBuilder &k, mlir::Value query), keyPosition(KernelBuilder &k, mlir::Value key);

  const bool cached;
  std::optional<int64_t> reach;

private:
  // How many keys are at positions before this one.
  mlir::Value keysBefore(KernelBuilder &k, mlir::Value position);
  KeyPositions positions; // with a reach
};

// Numbers by the distance of a key and a query, of one head (xfc.distance_bias, xfc.sum_distances): a line in scratch
// with the key's position minus the query's as the index, so that neighbouring keys have neighbouring numbers. All are
// below `distances`, ever.
class Distances {
public:
  Distances(KernelBuilder &k, HeadOfSequence &at, mlir::Value line, int64_t distances);
  // Elements of scratch that a line needs.
  static int64_t size(int64_t distances) { return 2 * distances + 64; }

  // The line from entries [t, 2h + direction] of a table, or from zeros, for all distances of the sequence.
  void copyIn(BufferIndex table, int64_t heads);
  void clear();
  // The line into rows of the queries.
  void copyOut(BufferIndex rows);
  // row[c] += line[c's distance] for keys start + c, c < count, or line[..] += row[c]. Elements of the row and the line
  // up to the next whole vector may be read and written too; in the row these are zeros where they are added.
  void addTo(mlir::Value row, mlir::Value query, mlir::Value start, mlir::Value count);
  void addFrom(mlir::Value row, mlir::Value query, mlir::Value start, mlir::Value count);

private:
  void each(mlir::Value query, mlir::Value start, mlir::Value count,
            const std::function<void(mlir::Value, mlir::Value, int64_t)> &body);
  KernelBuilder &k;
  HeadOfSequence &at;
  mlir::Value middle; // the address of distance 0
  const int64_t distances;
};

class AttentionTiles {
public:
  explicit AttentionTiles(KernelBuilder &k) : k(k) {}

  // Features rounded up to vectors of 64 bytes, in which their sums are taken (SumLanes).
  int64_t padded(int64_t features) const;
  // Rows of keys and the like, rounded up to whole vectors.
  mlir::Value vectorsOf(mlir::Value count);

  // scratch[j] = factor * row(j), with zeros up to `padded(features)`; no factor is 1.
  void copyIn(mlir::Value scratch, int64_t stride, const RowAt &row, mlir::Value count, int64_t features,
              mlir::Value factor = {});
  // scratch[f][j] = row(j)[f]; columns from `count` to the next whole vector repeat the last row.
  void transposeIn(mlir::Value scratch, int64_t stride, const RowAt &row, mlir::Value count, int64_t features);
  // row(j) (+)= scratch[j] * factor(j).
  void copyOut(const RowAt &row, mlir::Value scratch, int64_t stride, mlir::Value count, int64_t features,
               const RowAt &factor = {}, bool accumulate = false);
  void zeroOut(const RowAt &row, mlir::Value count, int64_t features);

  struct Matrix {
    mlir::Value data, stride;
  };
  // c [rows, vectors x lanes] = a b, or c += a b; a is [rows, depth], or [depth, rows] if transposed. Each element
  // is one chain of fused multiply-adds over `depth`, however the rows and columns are tiled.
  void product(Matrix a, bool transposed, Matrix b, Matrix c, mlir::Value rows, mlir::Value vectors, mlir::Value depth,
               mlir::Value accumulate);

  // factors[j] = the dropout factor (0 or 1/(1-rate)) of key `start` + j for the query, j < count, and beyond up to
  // the next multiple of 64, where numbers mean nothing.
  void keepFactors(mlir::Value factors, HeadOfSequence &at, mlir::Value query, mlir::Value start, mlir::Value count,
                   double rate);

private:
  std::string tile(bool transposed, int64_t rows, int64_t columns);
  std::string driver(bool transposed);
  KernelBuilder &k;
};

} // namespace xfc
