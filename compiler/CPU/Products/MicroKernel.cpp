// The innermost product, in each form that an instruction set has for it.
//
// An element of a result is one chain of sums over the inner dimension in ascending order, regardless of the number of
// rows and of their tiling, so that a row's result never depends on its neighbors.
#include "MicroKernel.h"
#include "Int4.h"
#include "Int8.h"
#include "Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/FormatVariadic.h"
#include <utility>

using namespace mlir;

namespace xfc {

Products productsFor(const KernelBuilder &k, std::optional<ComputeType> compute) {
  if (!compute)
    return Products::Elements;
  if (*compute == ComputeType::int4)
    return Products::Nibbles;
  if (*compute == ComputeType::int8)
    return k.set.amx ? Products::DotTiles : k.set.vnni ? Products::Dots : Products::Quads;
  return k.set.amx ? Products::Tiles : k.set.bf16 ? Products::Pairs : Products::Widened;
}

Products gradientProductsFor(const KernelBuilder &k, std::optional<ComputeType> compute) {
  const Products products = productsFor(k, compute);
  return products == Products::Widened ? Products::Elements : products;
}

// Blocks of products by tiles, in bytes, for the caches that every CPU with AMX so far has (from Sapphire Rapids on):
// 48 KB and 2 MB a core. A product of tiles takes 16 cycles, so what matters is how often each operand passes a level
// of the caches.
//
// - A panel of weights, 32 columns wide, is multiplied by all rows of a block before the next. It takes two thirds of
//   the first cache, which leaves room for the rows and sums that pass by. With 256 units, loading and storing the sums
//   takes a tenth of the time of their products.
constexpr int64_t panelInFirstCache = 32 << 10;
// - The rows of a block are converted once for all columns, and read once for each panel. They take half of the second
//   cache: the next rows, the sums of 64 columns and two groups of panels need the rest.
constexpr int64_t rowsInSecondCache = 1 << 20;
// - All weights pass once for each block of rows. With 256 rows (Tiling::mostTiledRows), a core, which does 512
//   multiply-adds of bf16 a cycle, reads 4 bytes of weights a cycle from beyond the second cache. More rows would leave
//   fewer blocks than threads.
// - While a block is multiplied, this many bytes of the next rows are prefetched. The hardware fetches the others when
//   they are converted.
constexpr int64_t rowsAhead = 256 << 10;

int64_t Tiling::rowsAhead(int64_t rowBytes) const {
  return isTiled(products) && whole ? std::clamp<int64_t>(xfc::rowsAhead / rowBytes, 1, block) : block;
}

Tiling::Tiling(KernelBuilder &k, int64_t inner, Products products)
    : products(products), pair(products == Products::Elements  ? 1
                               : products == Products::Nibbles ? int4Unit
                               : isInt8(products)              ? 4
                                                               : 2),
      rows(6), vectors(k.registers() == 32 ? 4 : 2), block(k.registers() == 32 ? 84 : 72),
      left(products == Products::Widened || products == Products::Quads ? 2 : 1) {
  if (products == Products::Quads) {
    // Both words of a row, a vector of ones and intermediate results take registers as well.
    rows = 4;
  } else if (products == Products::Nibbles) {
    // The sums of a group, which are integers, take as many registers as those of floats, and the halves of a vector of
    // weights one each.
    rows = k.registers() == 32 ? 6 : 2;
    vectors = 2;
    left = int4LeftWords;
  } else if (isTiled(products)) {
    rows = 2 * Tiling::tile;
    vectors = 2;
  }
  panel = vectors * k.lanes();
  // A row of integers is rounded as a whole.
  whole = isTiled(products) || isInteger(products);
  byGroup = whole || products == Products::Elements;
  // A panel of integers is small, so the inner dimension is not divided. With vectors, a panel need not stay in the
  // first cache: with blocks of 64 or 128 units, which it would hold, products of f32 in a training step took 1 to 12 %
  // longer on a Cascade Lake, since they load and store their sums more often.
  const int64_t most = isTiled(products) ? panelInFirstCache / (panel * k.bytes()) : 512 / left;
  depth = isInteger(products) ? units(inner) : std::min(units(inner), most);
  stride = ((whole ? units(inner) : depth) * left + k.lanes() - 1) / k.lanes() * k.lanes() + 16;
  if (isTiled(products))
    block = std::clamp(rowsInSecondCache / (stride * k.bytes()) / rows * rows, rows, mostTiledRows);
}

void Tiling::readInPlace() {
  if (2 * block > mostTiledRows)
    return;
  whole = byGroup = false;
  block = mostTiledRows;
}

int64_t Tiling::units(int64_t inner) const {
  const int64_t units = (inner + pair - 1) / pair;
  return isTiled(products) ? (units + Tiling::tile - 1) / Tiling::tile * Tiling::tile : units;
}

int64_t Tiling::panelWords(int64_t inner) const {
  if (products == Products::Nibbles)
    return units(inner) * int4RightWords * panel;
  return (units(inner) + (products == Products::Quads ? 1 : isInt8(products) ? 2 : 0)) * panel;
}

Value Tiling::units(KernelBuilder &k, Value inner) const {
  Value units = k.div(k.add(inner, pair - 1), pair);
  return isTiled(products) ? k.mul(k.div(k.add(units, Tiling::tile - 1), Tiling::tile), Tiling::tile) : units;
}

//===--------------------------------------------------------------------------------------------------------===//
// bf16
//===--------------------------------------------------------------------------------------------------------===//

static Value words(KernelBuilder &k, Value x) {
  return arith::BitcastOp::create(k.b, k.vectorType(k.lanes(), k.i32), x);
}
static Value floats(KernelBuilder &k, Value x) { return arith::BitcastOp::create(k.b, k.vectorType(k.lanes()), x); }
static Value word(KernelBuilder &k, uint32_t bits) { return k.broadcast(k.i32Of(static_cast<int32_t>(bits))); }

Value roundToBF16(KernelBuilder &k, Value x) {
  if (k.set.bf16) {
    Value rounded = arith::TruncFOp::create(k.b, k.vectorType(k.lanes(), k.b.getBF16Type()), x);
    return arith::ExtFOp::create(k.b, x.getType(), rounded);
  }
  Value upper = word(k, 0xffff0000);
  return floats(k, arith::AndIOp::create(k.b, k.bitsOfBF16(x), upper));
}

static Value shuffled(KernelBuilder &k, Value first, Value second, llvm::function_ref<int64_t(int64_t)> from,
                      int64_t n) {
  SmallVector<int64_t> order;
  for (int64_t i = 0; i < n; ++i)
    order.push_back(from(i));
  return vector::ShuffleOp::create(k.b, first, second, order);
}

// The nearest bf16 of two vectors of 16, one after the other, by AVX512-BF16, which takes denormal numbers for zeros,
// as its products do.
static Value roundedTogether(KernelBuilder &k, Value first, Value second) {
  return LLVM::CallIntrinsicOp::create(k.b, k.vectorType(32, k.b.getBF16Type()),
                                       k.b.getStringAttr("llvm.x86.avx512bf16.cvtne2ps2bf16.512"),
                                       ValueRange{second, first})
      .getResult(0);
}

Value adjacentPairsOfBF16(KernelBuilder &k, Value first, Value second) {
  return LLVM::BitcastOp::create(k.b, first.getType(), roundedTogether(k, first, second));
}

Value pairOfBF16(KernelBuilder &k, Value first, Value second) {
  if (k.set.bf16) {
    Value both = roundedTogether(k, first, second);
    return LLVM::BitcastOp::create(k.b, first.getType(),
                                   shuffled(k, both, both, [](int64_t i) { return i / 2 + i % 2 * 16; }, 32));
  }
  Value half = word(k, 16), upper = word(k, 0xffff0000);
  Value low = arith::ShRUIOp::create(k.b, k.bitsOfBF16(first), half);
  Value high = arith::AndIOp::create(k.b, k.bitsOfBF16(second), upper);
  return floats(k, arith::OrIOp::create(k.b, low, high));
}

// The first (half = 0) or second (half = 1) elements of a vector of pairs, widened. A load two bytes further on has the
// second elements in the low halves, so that one shift serves both, and neither a mask nor the pairs take a register
// from the sums.
static Value widened(KernelBuilder &k, const View &pairs, int64_t half) {
  View from = pairs.as(k.b.getI16Type()) + half;
  Value loaded = LLVM::LoadOp::create(k.b, k.vectorType(k.lanes(), k.i32), from.data, /*alignment=*/2);
  return floats(k, arith::ShLIOp::create(k.b, loaded, word(k, 16)));
}

// sum + the products of the pairs of x and y.
static Value addPairs(KernelBuilder &k, Value sum, Value x, Value y) {
  Type type = k.vectorType(2 * k.lanes(), k.b.getBF16Type());
  auto pairs = [&](Value value) -> Value { return LLVM::BitcastOp::create(k.b, type, value); };
  return LLVM::CallIntrinsicOp::create(k.b, sum.getType(), k.b.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512"),
                                       ValueRange{sum, pairs(x), pairs(y)})
      .getResult(0);
}

View asWords(KernelBuilder &k, const View &rows) {
  const int64_t elements = k.bytes() / KernelBuilder::bytesOf(rows.element);
  return elements == 1 ? rows : rows.as(k.element).inRows(k.div(k.index(rows.stride), elements));
}

void copyLeft(KernelBuilder &k, const Tiling &t, const View &from, const View &to, int64_t elements) {
  if (isInt8(t.products))
    return copyInt8Row(k, t, from, to, elements);
  if (t.products == Products::Nibbles)
    return copyInt4Row(k, t, from, to, elements);
  auto store = [&](Value x, Value i) {
    if (t.products != Products::Widened)
      return k.store(x, to.as(k.b.getBF16Type()) + i);
    View place = to + i;
    k.store(roundToBF16(k, x), place);
  };
  k.features(elements, [&](Value i, int64_t used) { store(k.loadPart(from + i, used), i); });
  Value zeros = k.splat(0);
  for (int64_t i = (elements + k.lanes() - 1) / k.lanes() * k.lanes(); i < t.units(elements) * t.pair; i += k.lanes())
    store(zeros, k.index(i));
}

View stored(KernelBuilder &k, const View &p) { return p.element.isBF16() ? p.as(k.b.getI16Type()) : p; }
static bool isStored(Value vector) { return getElementTypeOrSelf(vector.getType()).isInteger(16); }

// Transposes 32 rows of 8 columns: each of 8 vectors begins with 4 of the rows, rounded, in its 4 parts of 128 bits,
// and the words of pairs of vectors are interleaved within these parts until a vector has one column. Compared with a
// transposition of 16 x 16 units this takes half of the shuffles between parts, which loads do instead, and none to
// form the pairs.
static SmallVector<Value> transposedPairs(KernelBuilder &k, llvm::function_ref<Value(int64_t row)> load) {
  auto rowsOf = [&](int64_t row, int64_t next) {
    Value second = load(next);
    return shuffled(k, load(row), second, [](int64_t i) { return i; }, 16);
  };
  SmallVector<Value> columns;
  for (int64_t j = 0; j < 8; ++j) {
    Value first = rowsOf(j, 8 + j), second = rowsOf(16 + j, 24 + j);
    columns.push_back(isStored(first) ? shuffled(
                                            k, first, second, [](int64_t i) { return i; }, 32)
                                      : roundedTogether(k, first, second));
  }
  for (int64_t bit = 4; bit > 0; bit /= 2)
    for (int64_t j = 0; j < 8; ++j)
      if (!(j & bit)) {
        Value x = columns[j], y = columns[j | bit];
        auto interleaved = [&](int64_t first) {
          return shuffled(k, x, y, [&](int64_t i) { return i / 8 * 8 + first + i % 8 / 2 + i % 2 * 32; }, 32);
        };
        columns[j] = interleaved(0);
        columns[j | bit] = interleaved(4);
      }
  return columns;
}

void transposeLeft(KernelBuilder &k, const Tiling &t, const View &from, Value rows, Value columns, const View &to,
                   const View &sums) {
  const std::string name =
      std::string("transpose_pairs") + (from.element.isBF16() ? "_bf16" : "") + (sums ? "_and_sum" : "");
  SmallVector<Type> types = {k.ptr, k.i64, k.i64, k.i64, k.ptr, k.i64};
  SmallVector<Value> arguments = {from.data, k.index(from.stride), rows, columns, to.data, k.index(to.stride)};
  if (sums) {
    types.push_back(k.ptr);
    arguments.push_back(sums.data);
  }
  k.helper(name, types, [&](ValueRange a) {
    View rowsFrom = k.at(a[0], from.element).inRows(a[1]), to = k.at(a[4]).inRows(a[5]);
    Value rows = a[2], columns = a[3];
    // Transposes 32 rows of 16 columns. `load` returns 8 elements of a row from a column on; `add` adds a row to sums.
    auto transpose = [&](Value row, Value column, llvm::function_ref<Value(int64_t, int64_t)> load,
                         llvm::function_ref<Value(Value, int64_t)> add) {
      if (sums) {
        View at = k.at(a[6]) + column;
        Value sum = k.load(at, k.lanes());
        for (int64_t r = 0; r < 2 * Tiling::tile; ++r)
          sum = add(sum, r);
        k.store(sum, at);
      }
      Value unit = k.div(row, t.pair);
      View first = to(column, unit);
      for (int64_t half = 0; half < Tiling::tile; half += 8)
        for (auto [i, pairs] : llvm::enumerate(transposedPairs(k, [&](int64_t r) { return load(r, half); })))
          k.store(pairs, first.row(half + static_cast<int64_t>(i)));
    };
    Value whole = k.mul(k.div(rows, 2 * Tiling::tile), 2 * Tiling::tile);
    using RowOf = llvm::function_ref<View(int64_t)>;
    auto eachColumns = [&](Value row, llvm::function_ref<void(Value column, RowOf at)> body) {
      View start = rowsFrom.row(row);
      k.loop(0, columns, Tiling::tile, [&](Value column) {
        View first = start + column;
        body(column, [&](int64_t r) { return first.row(r); });
      });
    };
    k.loop(0, whole, 2 * Tiling::tile, [&](Value row) {
      eachColumns(row, [&](Value column, RowOf at) {
        transpose(
            row, column, [&](int64_t r, int64_t half) { return k.load(stored(k, at(r)) + half, 8); },
            [&](Value sum, int64_t r) { return k.addf(sum, k.load(at(r), k.lanes())); });
      });
    });
    // The rows that are left, with zeros in place of those that are missing.
    k.when(k.less(whole, rows), [&] {
      Value counts = k.broadcast(k.truncated(k.sub(rows, whole)));
      auto isGiven = [&](int64_t r) { return k.less(r, counts); };
      eachColumns(whole, [&](Value column, RowOf at) {
        auto loadGiven = [&](int64_t r, bool widens) {
          Value given = isGiven(r);
          return k.loadMasked(widens ? at(r) : stored(k, at(r)), given);
        };
        transpose(
            whole, column,
            [&](int64_t r, int64_t half) {
              auto [low, high] = k.halves(loadGiven(r, false));
              return half ? high : low;
            },
            [&](Value sum, int64_t r) {
              Value more = k.addf(sum, loadGiven(r, true));
              return k.select(isGiven(r), more, sum);
            });
      });
    });
  });
  k.invoke(name, arguments);
}

Value unitsOf(KernelBuilder &k, const Tiling &t, Value first, Value second, bool rounds) {
  if (isStored(first))
    return vector::BitCastOp::create(k.b, k.vectorType(k.lanes()), vector::InterleaveOp::create(k.b, first, second));
  if (t.pair > 1)
    return pairOfBF16(k, first, second);
  return rounds ? roundToBF16(k, first) : first;
}

void packRight(KernelBuilder &k, const Tiling &t, const View &from, Value rows, bool rounds, const View &to,
               const Term &panels, Value columns) {
  const int64_t lanes = k.lanes();
  // Units of rows of which the first `given` exist.
  auto pack = [&](Value begin, Value end, int64_t given) {
    k.loop(begin, end, 1, [&](Value u) {
      View source = from.row(k.mul(u, t.pair)), target = to + k.mul(u, t.panel);
      k.loop(0, panels, 1, [&](Value p) {
        for (int64_t v = 0; v < t.vectors; ++v) {
          Value column = k.add(k.mul(p, t.panel), v * lanes);
          Value mask = columns ? k.lanesBelow(column, columns) : Value();
          auto load = [&](int64_t row) {
            View at = stored(k, source.row(row) + column);
            if (row >= given)
              return k.constant(0, k.vectorType(lanes, at.element));
            return mask ? k.loadMasked(at, mask) : k.load(at, lanes);
          };
          Value first = load(0), second = load(1);
          View place = target(p, v * lanes);
          k.store(given ? unitsOf(k, t, first, second, rounds) : k.splat(0), place);
        }
      });
    });
  };
  Value whole = k.div(rows, t.pair), some = k.div(k.add(rows, t.pair - 1), t.pair);
  pack(k.index(0), whole, t.pair);
  if (t.pair > 1)
    pack(whole, some, 1);
  if (isTiled(t.products))
    pack(some, t.units(k, rows), 0);
}

//===--------------------------------------------------------------------------------------------------------===//
// Prefetching
//===--------------------------------------------------------------------------------------------------------===//

// The pairs of cache lines per row, rounded up to a power of two, which is cheap to divide by; the surplus is
// prefetched as well.
static int64_t pairsOfLines(int64_t bytes) { return static_cast<int64_t>(llvm::PowerOf2Ceil((bytes + 127) / 128)); }

static int64_t rowsFetched(const Tiling &t, int64_t bytes, int64_t depth) {
  return std::max<int64_t>(depth / t.around() / pairsOfLines(bytes), 1);
}

int64_t FetchedRows::tilesFor(const Tiling &t, int64_t all, int64_t bytes) {
  const int64_t rows = rowsFetched(t, bytes, t.depth);
  return (all + rows - 1) / rows;
}

FetchedRows::FetchedRows(KernelBuilder &k, const Tiling &t, const View &from, int64_t all, int64_t bytes,
                         const Term &begin, int64_t most, int64_t depth, int64_t turns)
    : across(pairsOfLines(bytes)), rows(rowsFetched(t, bytes, depth)) {
  // The tiles of all turns share the prefetching evenly, because each step of theirs takes long. More than four pairs
  // of lines a step would wait for each other; what is left out by that is fetched when it is read.
  if (isTiled(t.products))
    rows = std::min((all + turns * most - 1) / (turns * most),
                    std::max<int64_t>(4 * std::max<int64_t>(depth / Tiling::tile, 1) / across, 1));
  tiles = k.min(k.max(k.sub((all + rows - 1) / rows, begin), 0), most);
  first = [=, &k, words = asWords(k, from), rows = rows](Value tile) {
    return words.row(k.mul(k.add(begin, tile), rows));
  };
}

// Prefetches a pair of cache lines of a row.
static void fetchPair(KernelBuilder &k, const View &row, Value pair) {
  const int64_t line = 64 / k.bytes();
  View at = row + k.mul(pair, 2 * line);
  k.prefetch(at);
  k.prefetch(at + line);
}

//===--------------------------------------------------------------------------------------------------------===//
// In registers
//===--------------------------------------------------------------------------------------------------------===//

// A micro-kernel does more than multiply: for each unit, it prefetches `panelWords` words of the next panel, and
// in each iteration a pair of cache lines of rows that are `across` such pairs wide; or it packs its panel.
struct Beside {
  int64_t panelWords = 0, across = 0;
  bool pack = false;
};

// c[m][width x panel] (+)= a[m][0..depth) b[0..depth)[width x panel], with the stride `bStride` between panels of b.
// There is one function for each number of rows, width and stride of units, and for adjacent rows. Wide ones are for
// few rows, whose sums alone would be bound by latency. One that prefetches a panel has an additional argument, the
// address to start from; one that prefetches or packs rows has two, the address of the first row and the stride of
// rows.
static std::string microKernel(KernelBuilder &k, const Tiling &t, const Left &left, int64_t rows, int64_t width,
                               const Beside &beside) {
  static const char *const kinds[] = {"", "_widened", "_pairs", "", "_quads", "_dots"};
  const char *kind = kinds[static_cast<int>(t.products)];
  const bool int8 = isInt8(t.products), adjacent = left.rows.stride.number == 1;
  std::string name =
      llvm::formatv("product{0}_{1}x{2}_{3}{4}", kind, rows, width * t.panel, adjacent ? "columns" : "rows",
                    left.unit == 1 ? "" : llvm::formatv("_{0}", left.unit).str());
  SmallVector<Type> types = {k.ptr, k.i64, k.ptr, k.i64, k.i64, k.ptr, k.i64, k.i1};
  if (beside.panelWords) {
    name += "_fetching_" + std::to_string(beside.panelWords);
    types.push_back(k.ptr);
  }
  if (beside.across || beside.pack) {
    name += beside.pack ? "_packing" : "_fetching_rows_" + std::to_string(beside.across);
    types.append({k.ptr, k.i64});
  }
  k.helper(name, types, [&](ValueRange arguments) {
    View a = k.at(arguments[0]).inRows(arguments[1]), b = k.at(arguments[2]).inRows(arguments[3]);
    View c = k.at(arguments[5]).inRows(arguments[6]);
    Value depth = arguments[4], accumulate = arguments[7];
    const int64_t vectors = t.vectors * width, halves = t.products == Products::Widened ? 2 : 1;
    const size_t ofRows = beside.panelWords ? 9 : 8;
    View others; // rows to prefetch or pack
    if (ofRows < arguments.size())
      others = k.at(arguments[ofRows]).inRows(arguments[ofRows + 1]);
    SmallVector<View> aRows, cRows, panels;
    for (int64_t r = 0; r < rows; ++r) {
      aRows.push_back(adjacent ? a + r : a.row(r));
      cRows.push_back(c.row(r));
    }
    for (int64_t w = 0; w < width; ++w)
      panels.push_back(b.row(w));
    auto at = [&](int64_t r, int64_t v) { return cRows[r] + v * k.lanes(); };
    Values sums = k.choose(
        accumulate,
        [&] {
          Values old;
          for (int64_t i = 0; i < rows * vectors; ++i)
            old.push_back(k.load(at(i / vectors, i % vectors), k.lanes()));
          if (int8)
            llvm::transform(old, old.begin(), [&](Value sum) { return words(k, sum); });
          return old;
        },
        [&] { return Values(rows * vectors, int8 ? word(k, 0) : k.splat(0)); });
    auto step = [&](Value from, int64_t unroll, Values state) {
      Value aAt = k.mul(from, left.unit), bAt = k.mul(from, t.panel);
      if (beside.panelWords >= k.lanes() ||
          unroll > 1) // the units left over have no cache line of their own if few words are prefetched
        for (int64_t word = 0; word < unroll * beside.panelWords; word += 64 / k.bytes())
          k.prefetch(k.at(arguments[8]) + k.add(k.mul(from, beside.panelWords), word));
      if (beside.across && unroll > 1) {
        Value turn = k.div(from, unroll), pair = k.rem(turn, beside.across);
        fetchPair(k, others.row(k.div(turn, beside.across)), pair);
      }
      for (int64_t u = 0; u < unroll; ++u)
        for (int64_t half = 0; half < halves; ++half) {
          SmallVector<Value> right;
          for (int64_t v = 0; v < vectors; ++v) {
            View p = panels[v / t.vectors] + bAt + (u * t.panel + v % t.vectors * k.lanes());
            if (beside.pack) {
              right.push_back(k.load(others(k.add(from, u), v * k.lanes()), k.lanes()));
              k.store(right.back(), p);
            } else {
              right.push_back(t.products == Products::Widened ? widened(k, p, half) : k.load(p, k.lanes()));
            }
          }
          for (int64_t r = 0; r < rows; ++r) {
            View xAt = aRows[r] + aAt + (u * left.unit + half);
            Value x = k.broadcast(k.load(xAt));
            Value magnitude = t.products == Products::Quads ? k.broadcast(k.load(xAt + 1)) : Value();
            for (int64_t v = 0; v < vectors; ++v) {
              Value &sum = state[r * vectors + v];
              sum = int8                            ? addInt8(k, t, sum, x, magnitude, right[v])
                    : t.products == Products::Pairs ? addPairs(k, sum, x, right[v])
                                                    : k.fma(x, right[v], sum);
            }
          }
        }
      return state;
    };
    const int64_t unroll = t.around();
    Value whole = k.mul(k.div(depth, unroll), unroll);
    sums = k.loop(0, whole, unroll, sums, [&](Value at, Values state) { return step(at, unroll, std::move(state)); });
    sums = k.loop(whole, depth, 1, sums, [&](Value at, Values state) { return step(at, 1, std::move(state)); });
    for (int64_t i = 0; i < rows * vectors; ++i)
      k.store(sums[i], at(i / vectors, i % vectors));
  });
  return name;
}

SmallVector<Value> argumentsOf(KernelBuilder &k, const View &left, const View &right, const Term &depth,
                               const View &sums, Value accumulate) {
  return {left.data, k.index(left.stride), right.data, k.index(right.stride), k.index(depth),
          sums.data, k.index(sums.stride), accumulate};
}

void multiplyPanels(KernelBuilder &k, const Tiling &t, const Left &a, const Right &b, int64_t panels, const Term &depth,
                    const View &c, Value count, Value accumulate, const Ahead &ahead, bool fetchNext,
                    ArrayRef<FetchedRows> fetched, const Completion *completion) {
  if (isTiled(t.products))
    return multiplyTiles(k, t, a, b, panels, depth, c, count, accumulate, ahead, fetchNext, fetched, completion);
  if (t.products == Products::Nibbles)
    return multiplyInt4(k, t, a, b, panels, depth, c, count, ahead);
  Value tiles = k.div(count, t.rows), whole = k.mul(tiles, t.rows), rest = k.sub(count, whole);
  using Rows = SmallVector<Value>; // the first row to prefetch or pack, and the stride
  auto rowsOf = [&](const View &rows) { return Rows{rows.data, k.index(rows.stride)}; };
  auto call = [&](Value tile, int64_t rows, int64_t panel, int64_t width, const Beside &beside = {},
                  const Rows &others = {}) {
    View sums = c + k.add(k.mul(k.mul(tile, t.rows), c.stride), panel * t.panel);
    View left = a.rows + k.mul(tile, a.tile), right = b.panels.row(panel);
    SmallVector<Value> arguments = argumentsOf(k, left, right, depth, sums, accumulate);
    if (beside.panelWords) {
      Value words = k.mul(k.mul(tile, depth), beside.panelWords);
      const View following = panel + 1 == panels && b.after ? b.after : b.panels.row(panel + 1);
      arguments.push_back((following + words).data);
    }
    llvm::append_range(arguments, others);
    k.invoke(microKernel(k, t, a, rows, width, beside), arguments);
  };
  for (int64_t panel = 0; panel < panels; ++panel) {
    Value done = k.index(0);
    auto tilesUpTo = [&](Value end, const Beside &beside, const std::function<Rows(Value tile)> &others = {}) {
      k.loop(done, end, 1, [&](Value tile) {
        ahead(tile, panel);
        call(tile, t.rows, panel, 1, beside, others ? others(tile) : Rows());
      });
    };
    // On the first panel, rows are prefetched too.
    auto tilesWithRows = [&](Value end, int64_t panelWords) {
      for (const FetchedRows &rows : panel == 0 ? fetched : ArrayRef<FetchedRows>()) {
        Value before = done, last = k.min(end, k.add(done, rows.tiles));
        tilesUpTo(last, {.panelWords = panelWords, .across = rows.across},
                  [&](Value tile) { return rowsOf(rows.first(k.sub(tile, before))); });
        done = last;
      }
      tilesUpTo(end, {.panelWords = panelWords});
    };
    if (b.unpacked) {
      tilesUpTo(k.index(1), {.pack = true}, [&](Value) { return rowsOf(b.unpacked); });
      done = k.index(1);
      tilesWithRows(tiles, 0);
    } else if (fetchNext) {
      // Prefetches one vector of the next panel per unit, or, if there are enough tiles for nearly all of the panel,
      // one per two or four units, which stalls less.
      const Value begin = done;
      Value end = k.min(tiles, t.vectors);
      std::function<void()> fetch = [&] { tilesUpTo(end, {.panelWords = k.lanes()}); };
      for (int64_t units : {2, 4}) {
        const int64_t thinTiles = units * t.vectors;
        Value thinly = k.less(thinTiles * 3 / 4 - 1, tiles);
        end = k.select(thinly, k.min(tiles, thinTiles), end);
        fetch = [&, units, thinly, fetch] {
          k.when(
              thinly,
              [&] {
                units == 4 ? tilesWithRows(end, k.lanes() / units) : tilesUpTo(end, {.panelWords = k.lanes() / units});
                done = begin;
              },
              fetch);
        };
      }
      fetch();
      done = end;
      tilesUpTo(tiles, {});
    } else {
      tilesWithRows(tiles, 0);
    }
  }
  for (int64_t rows = 1; rows < t.rows; ++rows)
    k.when(k.equal(rest, rows), [&] {
      // Tiles are as wide as the registers allow for sums, right operands and one left operand. The right operands of a
      // single row come from memory, unless they have to be widened.
      int64_t most = 8 / t.vectors;
      while ((rows > 1 || t.products == Products::Widened) && most > 1 &&
             (rows + 1) * t.vectors * most + 1 > k.registers())
        most /= 2;
      for (int64_t panel = 0; panel < panels;) {
        int64_t width = most;
        while (width > panels - panel)
          width /= 2;
        call(tiles, rows, panel, width);
        panel += width;
      }
    });
}

} // namespace xfc
