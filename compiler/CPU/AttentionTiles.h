// Copies, transposes and small dense products over scratch, from which the attention kernels are made.
#pragma once

#include "CPU/Builder/KernelBuilder.h"
#include "CPU/Products/MicroKernel.h"
#include "Codegen/AttentionHead.h"
#include <functional>

namespace xfc {

// Returns row j of a matrix, wherever its rows are in memory.
using RowAt = std::function<View(mlir::Value)>;
using RowFactor = std::function<mlir::Value(mlir::Value)>;

// The head of a sequence that a chunk or a part of it has. Its numbers are i64.
struct HeadOfSequence : AttentionHead {
  HeadOfSequence(KernelBuilder &k, mlir::Value sequence, mlir::Value head) : AttentionHead(k, k.i64, sequence, head) {}
  // That of a chunk of attention, with chunk = sequence * heads + head.
  static HeadOfSequence ofChunk(KernelBuilder &k, int64_t heads);

  using AttentionHead::eachSharing;
  void eachSharing(KernelBuilder &k, int64_t sharing, const std::function<void()> &body);

  // first() and limit() relative to the key `from`, at least 0.
  mlir::Value first(KernelBuilder &k, mlir::Value query, mlir::Value from);
  mlir::Value limit(KernelBuilder &k, mlir::Value query, mlir::Value from);
  // x in the lanes whose keys are seen, `hidden` in the others. j is the first lane's key, counted from the same `from`
  // as `first` and `limit`.
  mlir::Value seen(KernelBuilder &k, mlir::Value j, mlir::Value first, mlir::Value limit, mlir::Value x,
                   mlir::Value hidden);
  // The largest limit of queries from .. from + count - 1.
  mlir::Value largestLimit(KernelBuilder &k, mlir::Value from, mlir::Value count);
  // This head's features in consecutive rows from `first` on, and the key head's features in the rows of the key list
  // from `start` on, each times its row's scale of this head, if there are scales.
  RowAt rows(KernelBuilder &k, BufferIndex buffer, int64_t width, mlir::Value first);
  RowAt listedRows(KernelBuilder &k, BufferIndex buffer, int64_t width, mlir::Value start,
                   std::optional<BufferIndex> scales = {});
  // Prefetches the features of the next head in the row of a query, and in that of the key with the same number (or of
  // the last key). A buffer is given with the number of features of a head.
  using Features = std::pair<BufferIndex, int64_t>;
  void fetchNextHead(KernelBuilder &k, llvm::ArrayRef<Features> ofQueries, llvm::ArrayRef<Features> ofKeys,
                     mlir::Value query);
  // Prefetches the `width` features of a head. The hardware does not prefetch those of the next head, since it follows
  // lines that are adjacent, and a kernel reads only a few lines of each row.
  static void fetch(KernelBuilder &k, const View &features, int64_t width);
  // Zeroes the key rows of this sequence if some of them are not in its key list. Only for sequences that have keys of
  // their own (training) and a `buffer` of rows of the key set.
  void clearRowsThatAreNoKeys(KernelBuilder &k, BufferIndex buffer, int64_t width);
};

// Numbers of one head by the distance between a key and a query (xfc.distance_bias, xfc.sum_distances): a line in
// scratch, indexed by the key's position minus the query's, so that neighboring keys have neighboring numbers. All
// distances are below `distances`.
class Distances {
public:
  Distances(KernelBuilder &k, HeadOfSequence &at, const View &line, int64_t distances);
  // Elements of scratch that a line needs.
  static int64_t size(int64_t distances) { return 2 * distances + 64; }

  // Fills the line with entries [t, 2h + direction] of a table, or with zeros, for all distances of the sequence.
  void copyIn(BufferIndex table, int64_t heads);
  void clear();
  // Copies the line to `rows`: the numbers of distance t to the row of query t.
  void copyOut(BufferIndex rows);
  // addTo: row[c] += line[distance of key start + c] for c < count; addFrom: line[distance of key start + c] += row[c].
  // Elements of the row and of the line up to the next whole vector may be read and written, too; for addFrom, those of
  // the row must be 0.
  void addTo(const View &row, mlir::Value query, mlir::Value start, mlir::Value count);
  void addFrom(const View &row, mlir::Value query, mlir::Value start, mlir::Value count);

private:
  void each(mlir::Value query, mlir::Value start, mlir::Value count,
            const std::function<void(mlir::Value, const View &, int64_t)> &body);
  KernelBuilder &k;
  HeadOfSequence &at;
  const View middle; // from distance 0 on
  const int64_t distances;
};

class AttentionTiles {
public:
  explicit AttentionTiles(KernelBuilder &k) : k(k) {}
  // With a compute type, products round their operands to it and multiply by tiles of AMX. `widest` is the largest
  // inner dimension of a product.
  AttentionTiles(KernelBuilder &k, std::optional<ComputeType> compute, int64_t widest);
  // Whether there are products for a compute type: there are none by vectors, which gain too little by it.
  static bool computesIn(const KernelBuilder &k, std::optional<ComputeType> compute) {
    return !compute || productsFor(k, compute) == Products::Tiles;
  }
  // Returns so many elements of scratch.
  using Area = std::function<View(int64_t)>;
  // Called once in a kernel, before its products, which have at most `rows` rows.
  void prepare(const Area &area, int64_t rows);

  // Features rounded up to vectors of 64 bytes, in which sums over them are taken (SumLanes), or to the columns that
  // tiles multiply together.
  int64_t padded(int64_t features) const;
  // A vector rounded to the compute type, if there is one, for what is multiplied without `product`.
  mlir::Value rounded(mlir::Value x) const;
  // The number of vectors that `count` elements take.
  mlir::Value vectorsOf(mlir::Value count);

  // scratch[j] = factor * row(j), padded with zeros to a whole vector.
  void copyIn(const View &scratch, const RowAt &row, mlir::Value count, int64_t features,
              std::optional<double> factor = {});
  // scratch[f][j] = row(j)[f]; columns from `count` to the next whole vector repeat the last row.
  void transposeIn(const View &scratch, const RowAt &row, mlir::Value count, int64_t features);
  // row(j) (+)= scratch[j] * factor(j).
  void copyOut(const RowAt &row, const View &scratch, mlir::Value count, int64_t features, const RowFactor &factor = {},
               bool accumulate = false);
  void zeroOut(const RowAt &row, mlir::Value count, int64_t features);

  // The right operand of products: rows in scratch and, with a compute type, the same rows rounded, as panels of pairs.
  struct Right {
    View rows;
    View panels = {};
    int64_t panelStride = 0;
  };
  // A right operand of up to `rows` rows and `columns` columns, whose rows are `stride` apart.
  Right right(const Area &area, int64_t rows, int64_t columns, int64_t stride) const;
  // With a compute type, rounds the first `depth` rows of b, each of `vectors` vectors, and reads up to the next
  // multiple of 32 columns. To be called when b's rows have been written, before it is multiplied.
  void round(const Right &b, const Term &depth, const Term &vectors);
  // c [rows, vectors x lanes] = a b, or c += a b; a is [rows, depth], or [depth, rows] if transposed. Each element
  // is one chain of fused multiply-adds over `depth`, however the rows and columns are tiled. With a compute type,
  // tiles of 16 rows and 32 columns are computed as a whole: operands are read and c is overwritten up to the next
  // multiple, but no number beyond `depth`, the rows and the columns counts within them. b may have more rounded rows
  // than `depth`; those up to the next multiple of 32 are multiplied by zeros, so they must be finite.
  void product(const View &a, bool transposed, const Right &b, const View &c, mlir::Value rows, const Term &vectors,
               const Term &depth, bool accumulate);

  // factors[j] = the dropout factor (0 or 1/(1-rate)) of key `start` + j for the query, j < count. Elements up to the
  // next multiple of 64 may be overwritten with meaningless numbers.
  void keepFactors(const View &factors, HeadOfSequence &at, mlir::Value query, mlir::Value start, mlir::Value count,
                   double rate);

private:
  std::string tile(bool transposed, int64_t rows, int64_t columns);
  std::string driver(bool transposed);
  std::string roundingDriver(bool transposed);
  KernelBuilder &k;
  std::optional<Tiling> tiling; // of products that round
  View left;                    // their left operand: rows of pairs
};

} // namespace xfc
