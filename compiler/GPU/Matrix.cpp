// Matrix products over rows, their epilogues and the gradients of their weights: one block of threads per tile of a
// result.
#include "Dialect/Values.h"
#include "Emitters.h"
#include "ProductTile.h"
#include "WarpgroupTile.h"

using namespace mlir;

namespace xfc::gpu {
namespace {

int64_t upTo(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

bool inBF16(std::optional<ComputeType> compute) { return compute == ComputeType::bf16; }

// Tiles of rows times a weight. In bf16, warps have 64x64, for which they read 4 KB of shared memory for 16 x 64 x 64
// products. Tiles are wide, since most of the L2 bandwidth goes to the f32 rows: 64 operations per byte, and 43 if
// tiles were square. In f32, the operands of four steps are in registers, beside half as many sums.
TileShape tileFor(int64_t columns, bool bf16) {
  if (!bf16)
    return columns <= 64 ? TileShape{128, 64, 16, 32, 32} : TileShape{128, 128, 16, 64, 32};
  return columns <= 64    ? TileShape{128, 64, 32, 64, 32}
         : columns <= 128 ? TileShape{128, 128, 32, 64, 64}
                          : TileShape{128, 256, 32, 64, 64};
}

// The tile of a small-M variant with so many columns for 32 rows, of sums of `inner` terms. With few rows, a product
// takes as long as one tile, so there are many small tiles: they read more, but wait less often, since a block of K is
// deeper, and deeper still if it has few columns. The deepest has half as many rows, whose next block is in registers,
// and twice as many columns.
TileShape smallTile(int64_t columns, int64_t inner, bool bf16) {
  constexpr int64_t wide = 64, narrow = 16, deepest = 512;
  if (bf16 && columns == narrow && inner >= deepest)
    return {16, 2 * narrow, deepest, 16, 8};
  const int64_t most = bf16 ? 256 : 128, least = most / 4;
  const auto enough = static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(inner)));
  return {32, columns, columns == wide ? least : std::clamp(enough, least, most), 16, columns / 2};
}

// Dropout of a thread's share of a tile's row. One Philox counter gives the random numbers of eight features, 8 apart
// (abi.h).
struct Dropout {
  KernelBuilder &k;
  DropoutOp op; // null where there is none
  Value training = op ? k.training() : Value();

  // The factors of a row for `pairs` pairs of adjacent columns from `first` on. Pairs are 8 columns apart, and all lie
  // within 64 columns that begin at a multiple of 64. `first` is at most 7 more than a multiple of 8 * pairs.
  Values factors(Value row, Value first, int64_t pairs) {
    const double rate = op.getRate().convertToDouble();
    if (op.getKept())
      return Values(2 * pairs, k.keptFactor(rate));
    return k.choose(
        training,
        [&] {
          const CodeBuilder::DropoutKey key = k.dropoutKeyOf(k.dropoutId(), row);
          Value counter = k.counterOf(first);
          std::array<std::array<Value, 4>, 2> words; // for the two columns of a pair
          for (int64_t i = 0; i < 2; ++i)
            words[i] = k.philox(key, k.add(counter, i));
          Values all;
          for (int64_t pair = 0; pair < pairs; ++pair)
            for (const std::array<Value, 4> &own : words) {
              Value number = pairs == 8 ? k.numberOf(own, 8 * pair) : k.numberOf(own, k.add(first, 8 * pair));
              all.push_back(k.keepFactor(number, rate));
            }
          return all;
        },
        [&] { return Values(2 * pairs, k.scalar(1)); });
  }
};

// The operands of a product of rows and a weight, and its epilogue.
struct Terms {
  explicit Terms(LinearOp op)
      : op(op), rows(op.getXMutable()), weight(op.getWeightMutable()), type(op.getWeight().getType()), along(true),
        extras(op.getExtras().size()), epilogue(&op.getEpilogue()) {
    if (op.getBias())
      bias = op.getBiasMutable();
  }
  explicit Terms(LinearToCacheOp op)
      : op(op), rows(op.getXMutable()), weight(op.getWeightMutable()), type(op.getWeight().getType()), along(true),
        caches(op.getWritten()) {
    if (op.getBias())
      bias = op.getBiasMutable();
  }
  explicit Terms(LinearInputGradOp op)
      : op(op), rows(op.getDyMutable()), weight(op.getWeightMutable()), type(op.getWeight().getType()), along(false),
        extras(op.getExtras().size()), epilogue(&op.getEpilogue()) {}

  Operation *op;
  BufferIndex rows, weight;
  RankedTensorType type; // of the weight, [out, in]
  bool along;            // the sum runs along `in`
  std::optional<BufferIndex> bias;
  int64_t extras = 0;         // the number of the epilogue's operands, which are the op's last
  Region *epilogue = nullptr; // null, or empty, if there is none
  ValueRange caches = {};     // that take the columns after those of the only other result

  ResultRange results() const { return op->getResults().drop_back(caches.size()); }
  bool hasEpilogue() const { return epilogue && !epilogue->empty(); }

  bool inBF16() const { return cast<ProductOpInterface>(op).getCompute() == ComputeType::bf16; }
  int64_t inner() const { return type.getDimSize(along ? 1 : 0); }
  int64_t columns() const { return type.getDimSize(along ? 0 : 1); }
};

// The most registers of a thread for an epilogue's operands that have been loaded ahead of their use.
constexpr int64_t registersAhead = 32;

// The parts of the columns of xfc.linear_to_cache: those of the result's rows, then those of each cache.
class ColumnParts {
public:
  ColumnParts(KernelBuilder &k, const Terms &terms)
      : k(k), slots(k.numbers(k.shape(), offsetof(xfc_shape, slots))), columns(terms.columns()), access(k, columns) {
    int64_t begin = 0;
    for (OpResult result : terms.op->getResults()) {
      const int64_t end = begin + widthOf(result);
      if (!result.use_empty()) {
        access.include(result);
        parts[BufferIndex(result).element().isBF16()].push_back({result, begin, end});
      }
      begin = end;
    }
  }
  // The caches' row (i64) for a row (i64) that exists if `isRow`.
  Value slotOf(Value row, Value isRow) const {
    const View place = slots + row;
    return k.i64Of(k.loadIf(isRow, place, 1)[0]);
  }
  // Stores two numbers of each pair of adjacent columns, 8 apart, the first of which is at `column` (i32). Parts of one
  // type differ only in the address.
  void store(ArrayRef<Value> numbers, Value row, Value slot, Value isRow, Value column) const {
    for (const SmallVector<Part> &ofType : parts) {
      if (ofType.empty())
        continue;
      SmallVector<View> lines; // where column 0 would be
      int64_t all = 0;
      for (const auto &[result, begin, end] : ofType) {
        lines.push_back(k.rowOf(result, begin ? slot : row) + -begin);
        all += end - begin;
      }
      for (size_t i = 0; i < numbers.size(); i += 2) {
        Value own = k.add(column, static_cast<int64_t>(4 * i)), element = k.i64Of(own), isOwn = k.boolean(false);
        View line = lines.front();
        for (auto [part, other] : llvm::zip_equal(ofType, lines)) {
          Value begins = k.less(part.begin - 1, own), ends = k.less(own, part.end);
          line.data = k.select(begins, other.data, line.data);
          isOwn = k.either(isOwn, k.both(begins, ends));
        }
        Value isThere = all == columns ? isRow : k.both(isRow, isOwn);
        if (!line.element.isBF16()) {
          access.store(numbers.slice(i, 2), line, isThere, own);
          continue;
        }
        // Rows of bf16 have a multiple of 8 columns. A warp may have too few columns to store 16 bytes of them at once.
        Value pair = k.pairOfBF16(numbers[i], numbers[i + 1]);
        const View place = (line + element).as(k.i32);
        k.storeIf(k.both(isThere, k.less(own, columns)), {pair}, place);
      }
    }
  }

private:
  struct Part {
    OpResult result;
    int64_t begin, end;
  };
  KernelBuilder &k;
  View slots;
  const int64_t columns;
  PairAccess access;
  std::array<SmallVector<Part>, 2> parts; // stored in f32, and in bf16
};

// Adds the bias to the sums of the tile at (row, column) of a product, applies the epilogue, and stores the results.
void finish(KernelBuilder &k, const ThreadSums &product, ArrayRef<Value> sums, Value row, Value column,
            const Terms &terms) {
  Operation *op = terms.op;
  SmallVector<BufferIndex> extras;
  for (OpOperand &extra : op->getOpOperands().take_back(terms.extras))
    extras.push_back(extra);
  PairAccess access(k, terms.columns());
  for (BufferIndex extra : extras)
    access.include(extra);
  for (OpResult result : terms.results())
    if (!result.use_empty())
      access.include(result);
  if (terms.bias)
    access.include(k.buffer(*terms.bias).inRows(0));
  std::optional<ColumnParts> columnParts;
  if (!terms.caches.empty())
    columnParts.emplace(k, terms);

  Value rows = k.truncated(k.rowCount()), firstColumn = k.add(column, product.firstColumn());
  Dropout dropout{k, terms.hasEpilogue() ? dropoutOf(*terms.epilogue) : DropoutOp()};
  // 64 columns of a row at a time, so that what is computed of them fits into registers beside the sums.
  const int64_t together = std::min<int64_t>(8, product.pairsOfThread());
  struct Part {
    int64_t row, begin;
    Value f, number, isRow, at;
    SmallVector<Values> fetched; // for each extra
    Value slot;                  // of caches
  };
  SmallVector<Part> parts;
  for (int64_t begin = 0; begin < product.pairsOfThread(); begin += together)
    for (int64_t r = 0; r < product.rowsOfThread(); ++r) {
      Value number = k.add(k.add(row, product.firstRow()), 8 * r), isRow = k.less(number, rows);
      parts.push_back({r, begin, k.add(firstColumn, 8 * begin), number, isRow, k.i64Of(number), {}, {}});
    }
  // ptxas lets no load pass a store before it. So as many parts as fit into registers are loaded before the results of
  // the first are stored, and wait for memory together.
  int64_t words = 0;
  for (BufferIndex extra : extras)
    words += together * (extra.element().isBF16() ? 1 : 2);
  Values bias; // of the part's columns: two numbers of each pair, as of each extra and each result
  const size_t ahead = words ? std::max<int64_t>(1, registersAhead / words) : columnParts ? parts.size() : 1;
  for (size_t first = 0; first < parts.size(); first += ahead) {
    const MutableArrayRef<Part> batch =
        MutableArrayRef<Part>(parts).slice(first, std::min(ahead, parts.size() - first));
    for (Part &part : batch) {
      for (BufferIndex extra : extras)
        part.fetched.push_back(access.fetch(k.rowOf(extra, part.at), part.isRow, part.f, together));
      if (columnParts)
        part.slot = columnParts->slotOf(part.at, part.isRow);
    }
    for (const Part &part : batch) {
      if (terms.bias && part.row == 0) {
        const View all = k.buffer(*terms.bias);
        bias = access.load(all, k.boolean(true), part.f, together);
      }
      Values factors;
      if (dropout.op)
        factors = dropout.factors(k.i64Of(k.min(part.number, k.sub(rows, 1))), part.f, together);
      SmallVector<Values> loaded;
      for (auto [extra, fetched] : llvm::zip_equal(extras, part.fetched))
        loaded.push_back(access.numbersOf(k.rowOf(extra, part.at), fetched));
      SmallVector<Values> computed(terms.results().size());
      for (int64_t i = 0; i < 2 * together; ++i) {
        Value y = product.sum(sums, part.row, part.begin + i / 2, i % 2);
        if (terms.bias)
          y = k.addf(y, bias[i]);
        SmallVector<Value> values = {y};
        for (const Values &numbers : loaded)
          values.push_back(numbers[i]);
        if (terms.hasEpilogue())
          values = evaluateEpilogue(k, *terms.epilogue, values, dropout.op ? factors[i] : Value());
        for (auto [numbers, value] : llvm::zip(computed, values))
          numbers.push_back(value);
      }
      if (columnParts) {
        columnParts->store(computed[0], part.at, part.slot, part.isRow, part.f);
        continue;
      }
      for (auto [result, numbers] : llvm::zip_equal(terms.results(), computed))
        if (!result.use_empty())
          access.store(numbers, k.rowOf(result, part.at), part.isRow, part.f);
    }
  }
}

KernelInfo emitProduct(KernelBuilder &k, const Terms &terms, const TileShape &tile, bool bf16) {
  k.threads = tile.threads();
  const Operand weight = weightOperand(k, terms.weight, terms.type, bf16, terms.along);
  const int64_t inner = terms.inner(), across = upTo(terms.columns(), tile.columns);
  Value row = k.mul(k.div(k.chunk, across), tile.rows), column = k.mul(k.rem(k.chunk, across), tile.columns);
  k.when(k.less(row, k.rowCount()), [&] {
    ProductTile product(k, tile, weight.packed, rowsOperand(k, terms.rows, inner, /*along=*/true), weight);
    Value firstColumn = k.truncated(column), firstRow = k.truncated(row);
    Values sums = product.multiply(firstRow, firstColumn, k.i32Of(static_cast<int32_t>(inner)));
    finish(k, product, sums, firstRow, firstColumn, terms);
  });
  return {{Partition::Unit::Rows, tile.rows, across}};
}

// Computes the product by warpgroups: the blocks of a cluster have the same columns and consecutive tiles of rows. Of n
// clusters that run at once, each takes every n-th pair of tiles.
KernelInfo emitByWarpgroups(KernelBuilder &k, const Terms &terms) {
  using Product = WarpgroupTile;
  constexpr int64_t cluster = Product::clusterOfWeight, rowsOfCluster = cluster * Product::rows;
  const int64_t inner = terms.inner(), columns = terms.columns() > 128 ? 256 : 128,
                across = upTo(terms.columns(), columns);
  k.threads = Product::threads;
  const BlockedWeight weight(k, terms.weight, terms.type, terms.along);
  Product product(k, columns, rowsOperand(k, terms.rows, inner, /*along=*/true), weight);
  Value first = k.truncated(k.div(k.chunk, cluster)), clusters = k.div(k.blocks(), cluster),
        rowOfBlock = k.mul(k.truncated(k.rem(k.chunk, cluster)), Product::rows);
  Value pairs = k.truncated(k.mul(k.div(k.add(k.rowCount(), rowsOfCluster - 1), rowsOfCluster), across));
  Value left = k.max(k.sub(pairs, first), 0), count = k.quotientUp(left, clusters); // 0 beyond the last pair
  product.multiplyAll(
      count, inner,
      [&](Value i) {
        Value pair = k.add(first, k.mul(i, clusters)), row = k.mul(k.div(pair, across), rowsOfCluster);
        return Product::Place{k.add(row, rowOfBlock), k.mul(k.rem(pair, across), columns)};
      },
      [&](const Product::Place &place, ArrayRef<Value> sums) {
        finish(k, product, sums, place.row, place.column, terms);
      },
      [&](const Product::Place &place) {
        for (OpOperand &extra : terms.op->getOpOperands().take_back(terms.extras))
          product.prefetch(extra, place, terms.columns());
      });
  return {.partition = {Partition::Unit::Rows, rowsOfCluster, cluster * across}, .resident = true};
}

// Whether the architecture has warpgroups, and their kernel suits the product's shape and type. With few columns, the
// time goes into reading the rows, which smaller tiles do just as well.
bool suitsWarpgroups(const Architecture &architecture, const Terms &terms, std::optional<ComputeType> compute) {
  return WarpgroupTile::multiplies(architecture, compute, {terms.rows}) && terms.columns() > 64;
}

// A tile of a small-M variant, and the most rows for which it is used.
struct SmallTile {
  TileShape tile;
  int64_t rows;
};

// The tiles of the small-M variants, from wide to narrow. While there are fewer large tiles than multiprocessors, they
// take the time of one; tiles of 64 columns read four times as much, and take as long in place of 32 large ones.
// Narrower ones read more still, so they are used only while each has a multiprocessor of its own, whose tile is then
// the smaller one: an H100 or an H200 has so many. All give the same bits. A warp that has fewer than 32 columns does
// not access whole pieces of bf16 rows (PairAccess), which no result of a decoding step has.
SmallVector<SmallTile> smallTilesOf(const Terms &terms) {
  constexpr int64_t multiprocessors = 132;
  const bool bf16 = terms.inBF16();
  const int64_t columns = terms.columns(), inner = terms.inner();
  const TileShape large = tileFor(columns, bf16);
  SmallVector<SmallTile> tiles = {{smallTile(64, inner, bf16), 32 / upTo(columns, large.columns) * large.rows}};
  if (tiles[0].rows == 0)
    return {};
  auto isNarrow = [](Value value) { return elementOf(value.getType()).isBF16(); };
  if (llvm::any_of(terms.op->getOperands().take_back(terms.extras), isNarrow) ||
      llvm::any_of(terms.results(), isNarrow))
    return tiles;
  for (int64_t width : {32, 16}) {
    const TileShape tile = smallTile(width, inner, bf16);
    const int64_t rows = multiprocessors / upTo(columns, tile.columns) * tile.rows;
    if (rows > 0 && rows < tiles.back().rows)
      tiles.push_back({tile, rows});
  }
  return tiles;
}

SmallVector<int64_t> rowsOfSmallTiles(const Terms &terms) {
  return llvm::map_to_vector(smallTilesOf(terms), [](const SmallTile &small) { return small.rows; });
}
KernelInfo emitSmallProduct(KernelBuilder &k, const Terms &terms, size_t variant) {
  return emitProduct(k, terms, smallTilesOf(terms)[variant].tile, terms.inBF16());
}

// Whether the op gets the warpgroup kernel, which reads its weight in blocks (WarpgroupTile.h). The products of a
// decoding step, whose rows are f32, do not: wgmma may round differently from mma.sync, and a hypothesis must have the
// same bits however many others are in the batch. So they use mma.sync in a large batch, too.
bool byWarpgroups(const Architecture &architecture, LinearOp op) {
  return suitsWarpgroups(architecture, Terms(op), op.getCompute());
}
bool byWarpgroups(const Architecture &architecture, LinearInputGradOp op) {
  return suitsWarpgroups(architecture, Terms(op), op.getCompute());
}

struct LinearKernels : GPUKernelOpInterface::ExternalModel<LinearKernels, LinearOp> {
  std::optional<KernelInfo> emitKernel(Operation *op, KernelBuilder &k) const {
    const Terms terms(cast<LinearOp>(op));
    const bool bf16 = inBF16(cast<LinearOp>(op).getCompute());
    return readsBlocks(op, k.architecture) ? emitByWarpgroups(k, terms)
                                           : emitProduct(k, terms, tileFor(terms.columns(), bf16), bf16);
  }
  bool readsBlocks(Operation *op, const Architecture &architecture) const {
    return byWarpgroups(architecture, cast<LinearOp>(op));
  }
  SmallVector<int64_t> getSmallRows(Operation *op, const Architecture &architecture) const {
    return readsBlocks(op, architecture) ? SmallVector<int64_t>() : rowsOfSmallTiles(Terms(cast<LinearOp>(op)));
  }
  KernelInfo emitSmall(Operation *op, KernelBuilder &k, size_t variant) const {
    return emitSmallProduct(k, Terms(cast<LinearOp>(op)), variant);
  }
};

struct LinearToCacheKernels : GPUKernelOpInterface::ExternalModel<LinearToCacheKernels, LinearToCacheOp> {
  std::optional<KernelInfo> emitKernel(Operation *op, KernelBuilder &k) const {
    const Terms terms(cast<LinearToCacheOp>(op));
    return emitProduct(k, terms, tileFor(terms.columns(), terms.inBF16()), terms.inBF16());
  }
  SmallVector<int64_t> getSmallRows(Operation *op, const Architecture &) const {
    return rowsOfSmallTiles(Terms(cast<LinearToCacheOp>(op)));
  }
  KernelInfo emitSmall(Operation *op, KernelBuilder &k, size_t variant) const {
    return emitSmallProduct(k, Terms(cast<LinearToCacheOp>(op)), variant);
  }
};

struct LinearInputGradKernels : GPUKernelOpInterface::ExternalModel<LinearInputGradKernels, LinearInputGradOp> {
  std::optional<KernelInfo> emitKernel(Operation *op, KernelBuilder &k) const {
    const Terms terms(cast<LinearInputGradOp>(op));
    const bool bf16 = inBF16(cast<LinearInputGradOp>(op).getCompute());
    return readsBlocks(op, k.architecture) ? emitByWarpgroups(k, terms)
                                           : emitProduct(k, terms, tileFor(terms.columns(), bf16), bf16);
  }
  bool readsBlocks(Operation *op, const Architecture &architecture) const {
    return byWarpgroups(architecture, cast<LinearInputGradOp>(op));
  }
};

// The partial sums of a reduction that is split over chunks of rows, if a batch has more than one: for each chunk its
// dW, then its db.
struct WeightGradChunks {
  WeightGradChunks(KernelBuilder &k, LinearWeightGradOp op)
      : k(k), weights(op.getDweight().getType().getNumElements()),
        all(upTo(weights + op.getDweight().getType().getDimSize(0), 4) * 4),
        parts(static_cast<int64_t>(op->getNumOperands() + op->getNumResults())) {}
  // These return whether there are partial sums (i1), and where a chunk's dW and db are.
  Value any() { return k.less(chunkRows, k.rowCount()); }
  View dweight(Value chunk) {
    Value before = k.mul(chunk, all);
    return k.buffer({parts, k.element}) + before;
  }
  View dbias(Value chunk) { return dweight(chunk) + weights; }

  KernelBuilder &k;
  const int64_t weights, all, parts; // elements of dW, elements of a chunk, and the buffer's number
};

// How the tiles of dW and the chunks of rows are divided over blocks. There are no chunks if the tiles alone keep a GPU
// busy: the partial sums would take more memory than the rows do.
struct WeightGradWork {
  WeightGradWork(KernelBuilder &k, LinearWeightGradOp op, int64_t rowsOfTile, int64_t columnsOfTile, int64_t enough)
      : k(k), op(op), out(op.getDweight().getType().getDimSize(0)), in(op.getDweight().getType().getDimSize(1)),
        across(upTo(in, columnsOfTile)), tiles(upTo(out, rowsOfTile) * across), chunked(tiles < enough),
        hasBias(op.getDbias() && !op.getDbias().use_empty()), chunks(k, op) {
    chunk = chunked ? k.div(k.chunk, tiles) : k.index(0);
    from = k.mul(chunk, chunkRows);
    rows = chunked ? k.min(k.sub(k.rowCount(), from), chunkRows) : k.rowCount();
    Value number = chunked ? k.rem(k.chunk, tiles) : k.chunk;
    row = k.truncated(k.mul(k.div(number, across), rowsOfTile));
    column = k.truncated(k.mul(k.rem(number, across), columnsOfTile));
    // The first chunk runs even if there are no rows, to write zeros.
    Value hasRows = k.less(0, rows), hasWork = k.either(k.equal(chunk, 0), hasRows);
    runs = k.both(k.less(row, out), hasWork);
  }
  Operand operand(BufferIndex buffer, int64_t width) const {
    Operand all = rowsOperand(k, buffer, width, /*along=*/false);
    if (chunked) {
      all.data = all.data.row(from);
      all.lines = k.truncated(rows);
    }
    return all;
  }
  Operand dy() { return operand(op.getDyMutable(), out); }
  Operand x() { return operand(op.getXMutable(), in); }
  View target(BufferIndex buffer, const View &part) {
    View whole = k.buffer(buffer);
    if (chunked)
      whole.data = k.select(chunks.any(), part.data, whole.data);
    return whole;
  }
  // Stores a thread's sums.
  void storeSums(const ThreadSums &product, ArrayRef<Value> sums) {
    if (op.getDweight().use_empty())
      return;
    const View dweight = target(op.getDweight(), chunks.dweight(chunk)).inRows(in);
    PairAccess access(k, in);
    access.include(dweight);
    for (int64_t r = 0; r < product.rowsOfThread(); ++r) {
      Value o = k.add(k.add(row, product.firstRow()), 8 * r), isRow = k.less(o, out);
      Values numbers;
      for (int64_t i = 0; i < 2 * product.pairsOfThread(); ++i)
        numbers.push_back(product.sum(sums, r, i / 2, i % 2));
      const View line = dweight.row(k.i64Of(o));
      access.store(numbers, line, isRow, k.add(column, product.firstColumn()));
    }
  }
  // Stores the sum of dy for the row `within` of the tile, where `condition` holds.
  void storeBias(Value condition, Value within, Value sum) {
    Value o = k.add(row, within), element = k.i64Of(o);
    const View own = target(op.getDbias(), chunks.dbias(chunk)) + element;
    Value isOut = k.less(o, out);
    k.storeIf(k.both(condition, isOut), {sum}, own);
  }
  KernelInfo info() const {
    if (!chunked)
      return {{Partition::Unit::One, 1, tiles}};
    KernelInfo info{{Partition::Unit::Rows, chunkRows, tiles}};
    info.chunkBytes = chunks.all * 4;
    return info;
  }

  KernelBuilder &k;
  LinearWeightGradOp op;
  const int64_t out, in, across, tiles;
  const bool chunked, hasBias;
  WeightGradChunks chunks;
  Value chunk, from, rows, row, column, runs; // i64, i64, i64, i32, i32, i1
};

// A block owns a tile of dW and takes rows in ascending order: all of them, or only those of a chunk, since dW has few
// tiles and batches have many rows. For db, a thread sums every n-th row of four columns of dy, where n does not depend
// on the number of rows; the blocks with the first columns of dW own db.
KernelInfo emitLinearWeightGrad(KernelBuilder &k, LinearWeightGradOp op) {
  RankedTensorType type = op.getDweight().getType();
  const int64_t out = type.getDimSize(0), in = type.getDimSize(1);
  const bool bf16 = inBF16(op.getCompute());
  // In bf16, both operands go through registers, so tiles have half the depth. Small tiles read twice as much; they are
  // for shapes where large ones would leave most of a GPU idle.
  const TileShape large = bf16 ? TileShape{128, 128, 16, 64, 64} : tileFor(in, false),
                  small{64, 64, bf16 ? 32 : 16, 32, 32};
  const TileShape tile = upTo(out, 128) * upTo(in, 128) < 32 ? small : large;
  k.threads = tile.threads();
  WeightGradWork work(k, op, tile.rows, tile.columns, /*enough=*/256);
  const Operand x = work.x(), dy = work.dy();
  ProductTile product(k, tile, bf16, dy, x);
  k.when(work.runs, [&] {
    Values shares;
    Values sums = product.multiply(work.row, work.column, k.truncated(work.rows), work.hasBias ? &shares : nullptr);
    work.storeSums(product, sums);
    if (work.hasBias)
      k.when(k.equal(work.column, 0), [&] {
        Value sum = product.sumRows(shares), within = k.thread();
        work.storeBias(k.less(within, tile.rows), within, sum);
      });
  });
  return work.info();
}

// The same by warpgroups. The sums of dy are products with ones, so db has the order of sums of dW. Narrow tiles are
// for shapes where wide ones would leave most of a GPU idle.
KernelInfo emitWeightGradByWarpgroups(KernelBuilder &k, LinearWeightGradOp op) {
  using Product = WarpgroupTile;
  RankedTensorType type = op.getDweight().getType();
  const int64_t out = type.getDimSize(0), in = type.getDimSize(1),
                columns = upTo(out, Product::rows) * upTo(in, 256) < 16 ? 128 : 256;
  k.threads = Product::threads;
  WeightGradWork work(k, op, Product::rows, columns, /*enough=*/128);
  const Operand x = work.x(), dy = work.dy();
  k.when(work.runs, [&] {
    Product product(k, columns, dy, x, work.hasBias);
    product.multiply(work.row, work.column, k.truncated(work.rows), [&](ArrayRef<Value> sums) {
      work.storeSums(product, sums);
      if (!work.hasBias)
        return;
      Value hasFirst = k.equal(product.firstColumn(), 0), isFirst = k.both(k.equal(work.column, 0), hasFirst);
      for (int64_t r = 0; r < product.rowsOfThread(); ++r) {
        Value within = k.add(product.firstRow(), 8 * r);
        work.storeBias(isFirst, within, product.rowSum(sums, r));
      }
    });
  });
  return work.info();
}

// Adds up the partial sums of each element of dW and db, with chunks in ascending order.
KernelInfo emitLinearWeightGradReduction(KernelBuilder &k, LinearWeightGradOp op) {
  WeightGradChunks chunks(k, op);
  const int64_t per = 4 * k.threads, out = op.getDweight().getType().getDimSize(0);
  auto add = [&](const View &result, const View &part, int64_t count) {
    Value from = k.mul(k.chunk, per), to = k.min(k.add(from, per), count);
    k.overSpan({result, part}, from, to, {}, [&](Value i, int64_t n, const Values &) {
      Values sums = k.load(part + i, n);
      sums = k.loop(chunkRows, k.rowCount(), chunkRows, sums, [&](Value row, Values before) {
        Values next = k.load(part + k.mul(k.div(row, chunkRows), chunks.all) + i, n);
        for (int64_t e = 0; e < n; ++e)
          before[e] = k.addf(before[e], next[e]);
        return before;
      });
      k.store(sums, result + i);
      return Values();
    });
  };
  k.when(chunks.any(), [&] {
    if (!op.getDweight().use_empty()) {
      const View part = chunks.dweight(k.index(0));
      add(k.buffer(op.getDweight()), part, chunks.weights);
    }
    if (op.getDbias() && !op.getDbias().use_empty()) {
      const View part = chunks.dbias(k.index(0));
      add(k.buffer(op.getDbias()), part, out);
    }
  });
  return {{Partition::Unit::One, 1, upTo(chunks.weights, per)}};
}

struct LinearWeightGradKernels : GPUKernelOpInterface::ExternalModel<LinearWeightGradKernels, LinearWeightGradOp> {
  std::optional<KernelInfo> emitKernel(Operation *op, KernelBuilder &k) const {
    auto grad = cast<LinearWeightGradOp>(op);
    return WarpgroupTile::multiplies(k.architecture, grad.getCompute(), {grad.getDyMutable(), grad.getXMutable()})
               ? emitWeightGradByWarpgroups(k, grad)
               : emitLinearWeightGrad(k, grad);
  }
  KernelInfo emitReduction(Operation *op, KernelBuilder &k) const {
    return emitLinearWeightGradReduction(k, cast<LinearWeightGradOp>(op));
  }
};

} // namespace

void attachMatrixKernels(MLIRContext &context) {
  LinearOp::attachInterface<LinearKernels>(context);
  LinearToCacheOp::attachInterface<LinearToCacheKernels>(context);
  LinearInputGradOp::attachInterface<LinearInputGradKernels>(context);
  LinearWeightGradOp::attachInterface<LinearWeightGradKernels>(context);
}

} // namespace xfc::gpu
