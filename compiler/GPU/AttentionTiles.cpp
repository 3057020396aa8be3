// Building blocks of the attention kernels: the work of a block of threads, tiles in shared memory, and their products.
#include "AttentionTiles.h"
#include "TensorCore.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <numbers>
#include <utility>

using namespace mlir;

namespace xfc::gpu {

//===--------------------------------------------------------------------------------------------------------===//
// Work
//===--------------------------------------------------------------------------------------------------------===//

static Value i32(KernelBuilder &k, int64_t value) { return k.i32Of(static_cast<int32_t>(value)); }

// Row numbers and strides fit in 32 bits, so that their product is one instruction.
static Value strideOf(KernelBuilder &k, BufferIndex buffer) { return k.i64Of(k.truncated(k.stride(buffer))); }

RowAt HeadOfSequence::rows(KernelBuilder &k, BufferIndex buffer, int64_t width, Value from) {
  Value stride = strideOf(k, buffer), first = k.add(firstQuery, k.i64Of(from));
  Value before = k.mul(first, stride), column = k.mul(head, width);
  const View rows = (k.buffer(buffer) + column + before).inRows(stride);
  return [&k, rows](Value j) { return rows.row(k.i64Of(j)); };
}

RowAt HeadOfSequence::listedRows(KernelBuilder &k, BufferIndex buffer, int64_t width, Value from,
                                 std::optional<BufferIndex> scales) {
  Value stride = strideOf(k, buffer), column = k.mul(keyHead, width);
  const View rows = (k.buffer(buffer) + column).inRows(stride), list = keyList + from;
  View factors;
  if (scales) {
    Value apart = strideOf(k, *scales);
    factors = (k.buffer(*scales) + keyHead).inRows(apart);
  }
  return [&k, rows, list, factors](Value j) {
    Value row = k.i64Of(k.truncated(k.loadIndex(list + j)));
    return factors ? rows.row(row).times(k.CodeBuilder::load(factors.row(row))) : rows.row(row);
  };
}

Value HeadOfSequence::firstBlock(KernelBuilder &k, Value query, int64_t size) {
  return reach ? k.mul(k.div(first(k, query), size), size) : i32(k, 0);
}

Value HeadOfSequence::largestLimit(KernelBuilder &k, Value from, Value count, int64_t most) {
  Value last = k.sub(count, 1), largest;
  for (int64_t i = 0; i < most; i += KernelBuilder::warpSize) {
    Value one = limit(k, k.add(from, k.min(k.add(k.lane(), i), last)));
    largest = largest ? k.max(largest, one) : one;
  }
  return k.acrossLanes(largest, [&](Value x, Value y) { return k.max(x, y); });
}

void HeadOfSequence::clearRowsThatAreNoKeys(KernelBuilder &k, Value start, Value count,
                                            ArrayRef<std::pair<BufferIndex, int64_t>> buffers) {
  const View offsets = k.numbers(k.keyRows(), offsetof(xfc_rows, offsets));
  Value firstRow = k.loadIndex(offsets + sequence), end = k.loadIndex(offsets + k.add(sequence, 1));
  Value withEnd = k.add(count, 1), gaps = k.select(k.equal(k.add(start, count), keys), withEnd, count);
  k.acrossThreads(gaps, [&](Value i) {
    Value j = k.add(start, i);
    Value from = k.choose(
        k.equal(j, 0), [&]() -> Values { return {firstRow}; },
        [&]() -> Values { return {k.add(k.loadIndex(keyList + k.sub(j, 1)), 1)}; })[0];
    Value to = k.choose(
        k.equal(j, keys), [&]() -> Values { return {end}; }, [&]() -> Values { return {k.loadIndex(keyList + j)}; })[0];
    k.loop(from, to, 1, [&](Value row) {
      for (auto [buffer, width] : buffers) {
        Value before = k.mul(row, k.stride(buffer)), column = k.mul(keyHead, width);
        const View features = k.buffer(buffer) + column + before;
        k.loop(i32(k, 0), width, 1, [&](Value f) { k.store(0, features + f); });
      }
    });
  });
}

Partition eachHead(KernelBuilder &k, int64_t heads, const std::function<void(HeadOfSequence &)> &body) {
  Value sequence = k.div(k.chunk, heads);
  k.when(k.less(sequence, k.field(k.rows(), offsetof(xfc_rows, sequences), k.i64)), [&] {
    HeadOfSequence at(k, sequence, k.rem(k.chunk, heads));
    body(at);
  });
  return {Partition::Unit::Sequences, 1, heads};
}

Partition eachQuery(KernelBuilder &k, int64_t heads, const std::function<void(HeadOfSequence &, Value)> &body) {
  return eachHead(k, heads, [&](HeadOfSequence &at) {
    k.loop(k.warp(), at.queries, k.warps(), [&](Value query) { body(at, query); });
  });
}

void eachQueryBlockOfRows(KernelBuilder &k, Value part, Value head, int64_t size, const QueryBlockBody &body) {
  Value from = k.mul(part, size);
  k.when(k.less(from, k.rowCount()), [&] {
    Value count = k.rowCount(), to = k.min(k.add(from, size), count);
    const View sequences = k.numbers(k.rows(), offsetof(xfc_rows, sequence_of));
    Value first = k.loadIndex(sequences + from), last = k.loadIndex(sequences + k.sub(to, 1));
    k.loop(first, k.add(last, 1), 1, [&](Value sequence) {
      HeadOfSequence at(k, sequence, head);
      Value before = k.max(k.sub(from, at.firstQuery), 0);
      Value start = k.mul(k.div(k.add(before, size - 1), size), size);
      Value row = k.add(at.firstQuery, start);
      Value isQuery = k.less(start, k.i64Of(at.queries));
      k.when(k.both(k.less(row, to), isQuery), [&] { body(at, k.truncated(start)); });
    });
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Tiles
//===--------------------------------------------------------------------------------------------------------===//

// A multiple of 8 columns, or of 16 for tensor cores, which is also the depth of a step.
int64_t AttentionTiles::padded(int64_t features) const { return llvm::alignTo(features, bf16 ? 16 : 8); }

Core AttentionTiles::coreOf(KernelBuilder &k, bool bf16, int64_t columns,
                            ArrayRef<std::pair<BufferIndex, int64_t>> rows) {
  if (!bf16)
    return Core::Threads;
  const AttentionTiles tiles(k, Core::Warp);
  const bool direct = llvm::all_of(rows, [&](auto of) { return tiles.isDirect(of.first, of.second); });
  // wgmma has up to 256 columns, whose sums are half of a thread's registers.
  return k.architecture.warpgroups && direct && columns <= 256 ? Core::Warpgroup : Core::Warp;
}

// A row is padded by 16 bytes, so that the 16-byte pieces of eight rows lie in different banks. For a warpgroup, it is
// a line of each block of the tile (SwizzledMatrix). Lines are as long as the width has whole ones.
Tile AttentionTiles::tile(int64_t rows, int64_t features) const {
  const int64_t width = padded(features);
  if (core == Core::Warpgroup)
    return {k.at(k.shared(bytesOf(rows, features), 1024), elementType()), rows, width,
            std::min<int64_t>(width & -width, 64)};
  return {k.at(k.shared(bytesOf(rows, features)), elementType()), rows, width, width + (bf16 ? 8 : 4)};
}
int64_t AttentionTiles::bytesOf(int64_t rows, int64_t features) const {
  if (core == Core::Warpgroup)
    return rows * padded(features) * 2;
  return rows * (padded(features) + (bf16 ? 8 : 4)) * (bf16 ? 2 : 4);
}
Tile AttentionTiles::tiles(int64_t stages, int64_t rows, int64_t features) const {
  Tile first = tile(rows, features);
  if (stages > 1)
    k.shared((stages - 1) * bytesOf(rows, features));
  return first;
}
Tile AttentionTiles::ofStage(const Tile &first, Value stage) const {
  Tile own = first;
  own.data = first.data + k.mul(stage, bytesOf(first.rows, first.width) / (bf16 ? 2 : 4));
  return own;
}

View AttentionTiles::at(const Tile &tile, Value row, Value column) const {
  if (core != Core::Warpgroup)
    return tile.data + k.add(k.mul(row, tile.stride), column);
  const int64_t side = tile.stride, pieces = side / 8;
  Value swizzle = k.rem(k.div(row, 8 / pieces), pieces), piece = k.bitXor(k.rem(k.div(column, 8), pieces), swizzle);
  Value block = k.mul(k.div(column, side), tile.rows * side), inPiece = k.rem(column, 8),
        inLine = k.add(k.mul(piece, 8), inPiece);
  return tile.data + k.add(k.add(k.mul(row, side), block), inLine);
}
// For a warpgroup, `rows` is a multiple of 8, so that the swizzle stays, and `columns` is 0.
View AttentionTiles::further(const Tile &tile, const View &from, int64_t rows, int64_t columns) const {
  if (core == Core::Warpgroup)
    return from + rows * tile.stride;
  return from + (rows * tile.stride + columns);
}
Type AttentionTiles::elementType() const { return bf16 ? Type(k.b.getI16Type()) : k.element; }

bool AttentionTiles::isDirect(BufferIndex buffer, int64_t features) const {
  return bf16 && buffer.element().isBF16() && features % 8 == 0;
}

void AttentionTiles::startCopy(const Tile &tile, const RowAt &rowAt, Value count, BufferIndex buffer,
                               int64_t features) {
  if (!isDirect(buffer, features)) {
    copyIn(tile, rowAt, count, buffer, features);
    return;
  }
  const int64_t pieces = tile.width / 8, all = tile.rows * pieces; // of 16 bytes
  Value last = k.sub(count, 1);
  auto copy = [&](Value i) {
    Value row = k.div(i, pieces), first = k.mul(k.rem(i, pieces), 8), valid = k.less(row, count);
    if (features < tile.width)
      valid = k.both(valid, k.less(first, features));
    const View to = at(tile, row, first);
    copyAsync(k, to, rowAt(k.min(row, last)) + first, valid);
  };
  const int64_t times = all / k.threads, rowsBetween = k.threads / pieces;
  if (all % k.threads || k.threads % pieces || (core == Core::Warpgroup && rowsBetween % 8)) {
    k.acrossThreads(all, copy);
    return;
  }
  // A thread's pieces are whole rows apart, and the numbers of all of its rows are loaded before the first copy.
  Value firstRow = k.div(k.thread(), pieces), feature = k.mul(k.rem(k.thread(), pieces), 8);
  const View to = at(tile, firstRow, feature);
  Value isFeature = features < tile.width ? k.less(feature, features) : Value();
  SmallVector<View> from;
  SmallVector<Value> valid;
  for (int64_t u = 0; u < times; ++u) {
    Value row = k.add(firstRow, u * rowsBetween), isRow = k.less(row, count);
    from.push_back(rowAt(k.min(row, last)) + feature);
    valid.push_back(isFeature ? k.both(isRow, isFeature) : isRow);
  }
  for (int64_t u = 0; u < times; ++u)
    copyAsync(k, further(tile, to, u * rowsBetween, 0), from[u], valid[u]);
}

Values AttentionTiles::eachBlock(Value from, Value end, int64_t size, int64_t stages, const Values &state,
                                 const std::function<void(Value, Value)> &copy,
                                 const std::function<Values(Value, Value, Values)> &use) {
  Value zero = i32(k, 0);
  if (stages == 1) {
    Values last = k.loop(from, end, size, state, [&](Value first, Values now) {
      k.barrier();
      copy(first, zero);
      finishCopies();
      return use(first, zero, std::move(now));
    });
    waitForCopies(); // those from before, if there was no block
    return last;
  }
  k.when(k.less(from, end), [&] { copy(from, zero); });
  Values withStage = state;
  withStage.push_back(zero);
  Values last = k.loop(from, end, size, withStage, [&](Value first, const Values &now) {
    finishCopies(); // the block has been copied, and the one before it is not used any more
    Value stage = now.back(), other = k.sub(1, stage), next = k.add(first, size);
    k.when(k.less(next, end), [&] { copy(next, other); });
    Values result = use(first, stage, Values(now.begin(), now.end() - 1));
    result.push_back(other);
    return result;
  });
  waitForCopies();
  last.pop_back();
  return last;
}

void AttentionTiles::waitForCopies() {
  if (!bf16)
    return;
  commitCopies(k);
  gpu::waitForCopies(k, 0);
}
void AttentionTiles::finishCopies() {
  waitForCopies();
  finishStores();
}
void AttentionTiles::finishStores() {
  if (core == Core::Warpgroup)
    fenceProxy(k);
  k.barrier();
}

void AttentionTiles::copyIn(const Tile &tile, const RowAt &rowAt, Value count, BufferIndex buffer, int64_t features) {
  const int64_t groups = tile.width / 4, all = tile.rows * groups;
  // The number of loads in flight at a time, once the row numbers that they depend on have been loaded.
  const int64_t together = std::min<int64_t>(8, llvm::divideCeil(all, k.threads));
  Value last = k.sub(count, 1);
  k.vectorized({buffer}, features, [&](int64_t n) {
    k.loop(k.thread(), all, k.threads * together, [&](Value first) {
      // If a thread's parts are whole rows apart, they have the same columns.
      const int64_t rowsBetween = k.threads % groups ? 0 : k.threads / groups;
      Value firstRow = k.div(first, groups), firstFeature = k.mul(k.rem(first, groups), 4);
      const View start = at(tile, firstRow, firstFeature);
      SmallVector<Value> rows, firsts;
      SmallVector<View> parts;
      for (int64_t u = 0; u < together; ++u) {
        Value i = k.add(first, u * k.threads);
        rows.push_back(rowsBetween ? k.add(firstRow, u * rowsBetween) : k.div(i, groups));
        firsts.push_back(rowsBetween ? firstFeature : k.mul(k.rem(i, groups), 4));
        parts.push_back(rowAt(k.min(rows[u], last)) + firsts[u]);
      }
      SmallVector<Values> loaded(together);
      for (int64_t u = 0; u < together; ++u) {
        Value inside = k.less(rows[u], count);
        auto insideFrom = [&](int64_t e) { return k.both(inside, k.less(k.add(firsts[u], e), features)); };
        if (n == 4)
          loaded[u] = k.loadIf(features == tile.width ? inside : insideFrom(0), parts[u], 4);
        else
          for (int64_t e = 0; e < 4; ++e) {
            const View number = parts[u] + e;
            loaded[u].push_back(k.loadIf(insideFrom(e), number, 1)[0]);
          }
      }
      for (int64_t u = 0; u < together; ++u) {
        const Values &xs = loaded[u];
        auto write = [&] {
          const View to = rowsBetween ? further(tile, start, u * rowsBetween, 0) : at(tile, rows[u], firsts[u]),
                     pairs = to.as(k.i32);
          if (bf16)
            k.store({k.pairOfBF16(xs[0], xs[1]), k.pairOfBF16(xs[2], xs[3])}, pairs);
          else
            k.store(xs, to);
        };
        if (all % (k.threads * together) == 0)
          write();
        else
          k.when(k.less(rows[u], tile.rows), write);
      }
    });
  });
}

void AttentionTiles::copyPairs(const Tile &tile, const View &from, Value rows, Value columns, bool transposed) {
  const int64_t width = transposed ? tile.rows : tile.width;
  k.acrossThreads(tile.rows * tile.width, [&](Value i) {
    Value row = k.div(i, width), column = k.rem(i, width);
    const View pair = from(k.i64Of(row), column);
    Value isColumn = k.less(column, columns), x = k.loadIf(k.both(k.less(row, rows), isColumn), pair, 1)[0];
    k.store(x, transposed ? at(tile, column, row) : at(tile, row, column));
  });
}

Value AttentionTiles::firstRow() { return k.mul(k.warp(), warpRows); }
Value AttentionTiles::firstJointRow() { return core == Core::Warpgroup ? i32(k, 0) : firstRow(); }
Value AttentionTiles::row(int64_t which) {
  Value ofLane = k.shiftRight(k.lane(), 2);
  return k.add(k.add(firstRow(), ofLane), which * 8);
}
Value AttentionTiles::column(int64_t i) { return k.add(k.shiftLeft(k.bitAnd(k.lane(), 3), 1), columnOf(i)); }

Value AttentionTiles::largestOfRows(const std::array<Value, 2> &values) {
  return k.acrossLanes(k.max(values[0], values[1]), [&](Value x, Value y) { return k.max(x, y); });
}

Value AttentionTiles::largestOfJointRows(const std::array<Value, 2> &values, Value ofBlock) {
  return core == Core::Warpgroup ? ofBlock : largestOfRows(values);
}

void AttentionTiles::copyOut(const RowAt &rowAt, const Values &product, Value count, BufferIndex buffer,
                             int64_t features, const std::array<Value, 2> &factor) {
  for (int64_t r = 0; r < 2; ++r)
    k.when(k.less(row(r), count), [&] {
      const View to = rowAt(row(r));
      k.vectorized({buffer}, features, [&](int64_t n) {
        for (int64_t i = r * 2; i < static_cast<int64_t>(product.size()); i += 4) {
          if (i / 4 * 8 >= features)
            continue;
          Value low = k.mulf(product[i], factor[r]), high = k.mulf(product[i + 1], factor[r]), f = column(i);
          const View first = to + f;
          if (n == 4 && i / 4 * 8 + 8 <= features)
            k.store({low, high}, first);
          else {
            k.storeIf(k.less(f, features), {low}, first);
            const View second = first + 1;
            k.storeIf(k.less(k.add(f, 1), features), {high}, second);
          }
        }
      });
    });
}

void AttentionTiles::copyOutPairs(const View &to, const Values &product, Value rows, Value columns) {
  for (int64_t r = 0; r < 2; ++r)
    k.when(k.less(row(r), rows), [&] {
      const View line = to.row(k.i64Of(row(r)));
      for (int64_t i = 0; i < static_cast<int64_t>(product.size()); ++i)
        if (rowOf(i) == r) {
          Value own = column(i);
          const View pair = line + own;
          k.storeIf(k.less(own, columns), {product[i]}, pair);
        }
    });
}

//===--------------------------------------------------------------------------------------------------------===//
// Products
//===--------------------------------------------------------------------------------------------------------===//

// Two groups of 8 columns of a product are 16 of the next one's depth: lanes have the same rows and columns of both.
Values AttentionTiles::packed(const Values &product) {
  Values registers;
  for (size_t i = 0; i < product.size(); i += 8)
    for (size_t pair : {0, 2, 4, 6})
      registers.push_back(k.pairOfBF16(product[i + pair], product[i + pair + 1]));
  return registers;
}

void AttentionTiles::store(const Values &product, const Tile &tile) {
  auto placeOf = [&](int64_t i) {
    Value first = column(i);
    return at(tile, row(rowOf(i)), first);
  };
  const View rows[2] = {placeOf(0), placeOf(2)};
  for (int64_t i = 0; i < static_cast<int64_t>(product.size()); i += 2) {
    const View to = core == Core::Warpgroup ? placeOf(i) : rows[rowOf(i)] + columnOf(i);
    k.store({k.pairOfBF16(product[i], product[i + 1])}, to.as(k.i32));
  }
}

Values AttentionTiles::productTransposed(const Left &a, const Tile &b) {
  Values result;
  multiply(Product{a, b, /*transposed=*/true, [&](Values sums) { result = std::move(sums); }});
  return result;
}
Values AttentionTiles::product(Values c, const Left &a, const Tile &b, Value depth) {
  Values result;
  multiply(Product{a, b, /*transposed=*/false, [&](Values sums) { result = std::move(sums); }, std::move(c), depth});
  return result;
}
Values AttentionTiles::scores(Values product, double scale) {
  Value factor = k.scalar(scale * std::numbers::log2e);
  for (Value &score : product)
    score = k.mulf(score, factor);
  return product;
}

void AttentionTiles::multiply(ArrayRef<Product> products) {
  if (core != Core::Warpgroup) {
    for (const Product &p : products) {
      Values c = p.sums.empty() ? zeros(p.columns()) : p.sums;
      p.use(bf16 ? multiplyByWarp(p, std::move(c)) : multiplyByThreads(p, c));
    }
    return;
  }
  auto matrixOf = [](const Tile &tile, bool along) {
    return SwizzledMatrix{tile.data.data, along, tile.rows * tile.stride * 2, tile.stride};
  };
  std::vector<WarpgroupProduct> all;
  for (const Product &p : products)
    all.push_back({p.sums, matrixOf(p.a.tile, !p.a.transposed), packed(p.a.product), matrixOf(p.b, p.transposed),
                   p.columns(), p.transposed ? p.b.width : p.b.rows});
  for (auto [p, sums] : llvm::zip_equal(products, multiplyWarpgroup(k, all)))
    p.use(sums);
}

Values AttentionTiles::multiplyByWarp(const Product &product, Values c) {
  const Left &a = product.a;
  const Tile &b = product.b;
  const bool transposed = product.transposed;
  const Values registers = packed(a.product);
  const int64_t tiles = c.size() / 4, steps = (transposed ? b.width : b.rows) / 16;
  Value lane = k.lane();
  // ldmatrix reads four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
  Value inner = k.bitAnd(lane, 7), second = k.bitAnd(k.shiftRight(lane, 3), 1), third = k.shiftRight(lane, 4);
  View leftStart;
  if (a.transposed) {
    Value row = k.add(inner, k.mul(third, 8)), right = k.mul(second, 8);
    leftStart = at(a.tile, row, k.add(firstRow(), right));
  } else if (registers.empty()) {
    Value column = k.mul(third, 8), lower = k.mul(second, 8);
    leftStart = at(a.tile, k.add(k.add(firstRow(), inner), lower), column);
  }
  auto leftOf = [&](int64_t step) {
    if (!registers.empty())
      return Values(registers.begin() + step * 4, registers.begin() + step * 4 + 4);
    return loadMatrices(
        k, a.transposed ? further(a.tile, leftStart, step * 16, 0) : further(a.tile, leftStart, 0, step * 16),
        a.transposed);
  };
  Value rightColumn = k.mul(transposed ? second : third, 8);
  const View rightStart = at(b, k.add(inner, k.mul(transposed ? third : second, 8)), rightColumn);
  for (int64_t step = 0; step < steps; ++step) {
    Values left = leftOf(step);
    for (int64_t n = 0; n < tiles; n += 2) {
      Values right = loadMatrices(
          k, transposed ? further(b, rightStart, n * 8, step * 16) : further(b, rightStart, step * 16, n * 8),
          !transposed);
      for (int64_t half = 0; half < 2; ++half)
        multiplyMatrices(k, left, {right[half * 2], right[half * 2 + 1]},
                         MutableArrayRef<Value>(c).slice((n + half) * 4, 4));
    }
  }
  return c;
}

Values AttentionTiles::multiplyByThreads(const Product &product, const Values &c) {
  const Tile &a = product.a.tile, &b = product.b;
  const Values &left = product.a.product;
  const bool transposed = product.transposed;
  if (!left.empty()) {
    syncWarp(); // the old contents may still be read
    for (size_t i = 0; i < left.size(); i += 2) {
      Value first = column(i);
      k.store({left[i], left[i + 1]}, at(a, row(rowOf(i)), first));
    }
    syncWarp();
  }
  const int64_t tiles = c.size() / 4;
  Value pair = column(0), zero = i32(k, 0);
  const View upper = at(a, row(0), zero), lower = further(a, upper, 8, 0);
  return k.loop(zero, transposed ? i32(k, b.width) : product.depth, 4, c, [&](Value d, Values s) {
    const View start = transposed ? at(b, pair, d) : at(b, d, pair);
    const Values rows[2] = {k.load(upper + d, 4), k.load(lower + d, 4)};
    auto add = [&](int64_t n, int64_t e, int64_t u, Value x) {
      for (int64_t r = 0; r < 2; ++r) {
        Value &sum = s[n * 4 + r * 2 + e];
        sum = k.fma(rows[r][u], x, sum);
      }
    };
    for (int64_t n = 0; n < tiles; ++n)
      if (transposed)
        for (int64_t e = 0; e < 2; ++e) {
          Values xs = k.load(further(b, start, n * 8 + e, 0), 4);
          for (int64_t u = 0; u < 4; ++u)
            add(n, e, u, xs[u]);
        }
      else
        for (int64_t u = 0; u < 4; ++u) {
          Values xs = k.load(further(b, start, u, n * 8), 2);
          add(n, 0, u, xs[0]);
          add(n, 1, u, xs[1]);
        }
    return s;
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Bias by distance
//===--------------------------------------------------------------------------------------------------------===//

DistanceTable::DistanceTable(KernelBuilder &k, BufferIndex table, Type type)
    : k(k), table(table), distances(cast<RankedTensorType>(type).getDimSize(0)),
      width(cast<RankedTensorType>(type).getDimSize(1)) {}

Value DistanceTable::entry(const HeadOfSequence &at, Value distance) {
  Value zero = i32(k, 0), size = k.min(k.max(distance, k.sub(zero, distance)), distances - 1);
  Value row = k.mul(k.i64Of(size), width), column = k.mul(at.head, 2);
  const View own = k.buffer(table) + column + row;
  return k.load(own + k.select(k.less(zero, distance), 1, zero));
}

PairBias::PairBias(KernelBuilder &k, AttentionTiles &tiles, std::optional<DistanceTable> table, Rows rowsAre,
                   int64_t rows, int64_t columns)
    : k(k), tiles(tiles), table(table), rowsAre(rowsAre), rows(rows), columns(columns),
      line(table ? k.at(k.shared((rows + columns) * 4)) : View()) {}

void PairBias::copyIn(HeadOfSequence &at, Value query, Value key, Value count) {
  if (!table)
    return;
  firstKey = key;
  lastKey = k.add(key, k.sub(count, 1));
  queryPosition = at.queryPosition(k, query);
  keyPosition = at.keyPosition(k, key);
  if (!at.cached) {
    Value between = k.sub(lastKey, firstKey);
    consecutive = k.equal(k.sub(at.keyPosition(k, lastKey), keyPosition), between);
  }
  Value apart = k.sub(keyPosition, queryPosition);
  k.acrossThreads(rows + columns - 1, [&](Value i) {
    Value further = k.sub(i, columns - 1);
    Value distance = rowsAre == Rows::keys ? k.add(apart, further) : k.sub(apart, further);
    const View place = line + i;
    k.store(table->entry(at, distance), place);
  });
  k.barrier();
}

void PairBias::add(HeadOfSequence &at, Values &scores) {
  if (!table)
    return;
  auto biased = [&](const std::function<Value(int64_t)> &bias) {
    Values sums = scores;
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = k.fma(bias(i), std::numbers::log2e, scores[i]);
    return sums;
  };
  auto ofLine = [&] {
    const View start = line + (columns - 1);
    auto ofRow = [&](int64_t which) {
      Value column = tiles.column(0);
      return start + k.sub(tiles.row(which), column);
    };
    const View from[2] = {ofRow(0), ofRow(1)};
    return biased([&](int64_t i) { return k.load(from[AttentionTiles::rowOf(i)] + -AttentionTiles::columnOf(i)); });
  };
  auto ofTable = [&] {
    return biased([&](int64_t i) {
      Value row = tiles.row(AttentionTiles::rowOf(i)), column = tiles.column(i);
      auto [query, key] = rowsAre == Rows::keys ? std::pair(column, row) : std::pair(row, column);
      Value ofKey = at.keyPosition(k, k.min(k.add(firstKey, key), lastKey));
      return table->entry(at, k.sub(ofKey, k.add(queryPosition, query)));
    });
  };
  scores = consecutive ? k.choose(consecutive, ofLine, ofTable) : ofLine();
}

//===--------------------------------------------------------------------------------------------------------===//
// Dropout
//===--------------------------------------------------------------------------------------------------------===//

PairDropout::PairDropout(KernelBuilder &k, AttentionTiles &tiles, const HeadOfSequence &at, double rate)
    : k(k), tiles(tiles), at(at), rate(rate) {
  if (rate == 0)
    return;
  Value sentence = k.loadIndex(k.numbers(k.rows(), offsetof(xfc_rows, sentences)) + at.sequence);
  Value headPlusOne = k.add(at.head, 1), none = k.index(0);
  dropoutKey = k.dropoutKey(k.dropoutId(), none, sentence, headPlusOne);
}

std::array<Value, 4> PairDropout::four(Value query, Value key) {
  CodeBuilder::DropoutKey own = dropoutKey;
  own.position = query;
  return k.philox(own, k.counterOf(key));
}

Value PairDropout::bit(Value number, Value which) {
  Value own = arith::ShLIOp::create(k.b, k.i32Of(1), which);
  return k.select(k.keeps(number, rate), own, 0);
}

Value PairDropout::whenTraining(const std::function<Values()> &bits) {
  if (rate == 0)
    return {};
  return k.choose(k.training(), bits, [&]() -> Values { return {k.i32Of(-1)}; })[0];
}

Value PairDropout::dropped(Value x, Value bits, int64_t i) {
  return rate == 0 ? x : k.select(k.equal(k.bitAnd(bits, static_cast<int32_t>(1u << i)), 0), 0, x);
}
Value PairDropout::scale() { return rate == 0 ? k.scalar(1) : k.keptFactor(rate); }

Value PairDropout::ofQueries(const std::array<Value, 2> &queries, Value firstKey, Value count, int64_t columns) {
  return whenTraining([&] {
    Value last = k.sub(count, 1), first = at.keyPosition(k, firstKey);
    const std::array<Value, 2> positions{at.queryPosition(k, queries[0]), at.queryPosition(k, queries[1])};
    // Keys share calls of Philox if their positions are consecutive (usually, without pad tokens among them) and begin
    // at a multiple of `columns`.
    Value isBlock = k.equal(k.rem(first, columns), 0),
          regular = k.both(k.equal(k.sub(at.keyPosition(k, k.add(firstKey, last)), first), last), isBlock);
    return k.choose(
        regular,
        [&]() -> Values {
          Value bits = k.i32Of(0), middle = k.i32Of(32), upperHalf = k.notLess(k.rem(first, 64), middle);
          for (int64_t i = 0; i < 4; ++i) { // one call has the numbers i, i + 4, .., which are 8 columns apart
            std::array<Value, 4> words = four(positions[AttentionTiles::rowOf(i)], k.add(first, tiles.column(i)));
            for (int64_t part = 0; part < columns / 8; ++part) {
              const int64_t w = part / 2;
              Value word = columns == 64 ? words[w] : k.select(upperHalf, words[w + 2], words[w]);
              Value number = part % 2 ? word : k.shiftLeft(word, 16);
              bits = k.bitOr(bits, bit(number, k.i32Of(static_cast<int32_t>(part * 4 + i))));
            }
          }
          return {bits};
        },
        [&] {
          Value zero = k.i32Of(0);
          return k.loop(zero, columns / 2, 1, ValueRange{zero}, [&](Value i, Values bits) -> Values {
            Value base = tiles.column(0), odd = k.bitAnd(i, 1), column = k.add(k.add(k.mul(k.div(i, 4), 8), odd), base);
            Value query = k.select(k.less(k.rem(i, 4), 2), positions[0], positions[1]);
            Value position = at.keyPosition(k, k.add(firstKey, k.min(column, last)));
            return {k.bitOr(bits[0], bit(k.numberOf(four(query, position), position), i))};
          });
        });
  });
}

// One call of Philox usually has the numbers of both of the lane's keys, which are 8 rows apart.
Value PairDropout::ofKeys(const std::array<Value, 2> &keys, Value firstQuery, Value count, int64_t columns) {
  return whenTraining([&] {
    Value last = k.sub(count, 1), upper = at.keyPosition(k, keys[0]), lower = at.keyPosition(k, keys[1]);
    Value lowerBlock = k.div(lower, 64), together = k.equal(k.div(upper, 64), lowerBlock);
    Value lowerCounter = k.rem(lower, 8), zero = k.i32Of(0);
    together = k.both(together, k.equal(k.rem(upper, 8), lowerCounter));
    return k.loop(zero, columns / 4, 1, ValueRange{zero}, [&](Value i, Values bits) -> Values {
      Value base = tiles.column(0), odd = k.bitAnd(i, 1), column = k.add(k.add(k.mul(k.div(i, 2), 8), odd), base);
      Value position = at.queryPosition(k, k.add(firstQuery, k.min(column, last)));
      std::array<Value, 4> words = four(position, upper);
      Value second = k.choose(
          together, [&]() -> Values { return {k.numberOf(words, lower)}; },
          [&]() -> Values { return {k.numberOf(four(position, lower), lower)}; })[0];
      Value which = k.add(k.mul(k.div(i, 2), 4), odd), ofLower = bit(second, k.add(which, 2));
      return {k.bitOr(bits[0], k.bitOr(bit(k.numberOf(words, upper), which), ofLower))};
    });
  });
}

} // namespace xfc::gpu
