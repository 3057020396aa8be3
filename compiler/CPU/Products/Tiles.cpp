// Products by the tiles of AMX.
#include "Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/FormatVariadic.h"
#include <array>

using namespace mlir;

namespace xfc {
namespace {

constexpr int64_t tile = Tiling::tile;

// The instructions name their tiles: LLVM's allocation of tiles configures them anew after each call, and the version
// that this is built on uses one more than it configures. A 2 x 2 block of sums and its operands take all eight.
enum Tiles : int8_t { firstSum = 0, firstLeft = 4, firstRight = 6 };

Value byte(KernelBuilder &k, int64_t value) {
  return arith::ConstantOp::create(k.b, k.b.getI8IntegerAttr(static_cast<int8_t>(value)));
}
void tileInstruction(KernelBuilder &k, const char *intrinsic, ValueRange operands) {
  LLVM::CallIntrinsicOp::create(k.b, k.b.getStringAttr(intrinsic), operands);
}

// The work that the micro-kernel of tiles does between its products, in each step of 16 units.
struct Between {
  bool panels = false; // whether it prefetches the panels that come next
  struct Rows {
    int64_t across, pairs; // pairs of lines per row, and how many pairs it prefetches
  };
  SmallVector<Rows, 2> rows;
  struct Touched {
    int64_t lines, rows; // per row, and rows per step
  };
  SmallVector<Touched, 2> touched; // rows of the results, and of what goes into them besides sums
  bool passes = false;             // whether rows are loaded past the first cache
  bool converts = false;           // whether it converts the next rows
  bool masked = false;             // whether these rows have fewer elements than their units hold
  int64_t units = 0;               // units of the next panel that it packs
  Type packed = {};                // from rows of this type
};

// c[rowTiles x 16][columnTiles x 16] (+)= a b, like microKernel. In each step of 16 units, a tile is loaded right
// before the first product that needs it, and every product is followed by a share of the step's other work, so that
// all of it runs while the tiles multiply. Further arguments, in this order: for panels to prefetch the address where
// the first one begins, with as many words between two panels as between those of b, and how many lines each product
// prefetches; for each of `rows`, the address of the first row and the stride, and for each of `touched`; the same for
// rows to convert, with the number of their elements if they are masked; and for a panel to pack the address of its
// first row, the stride, and its own address.
class TileKernel {
public:
  TileKernel(KernelBuilder &k, const Tiling &t, int64_t rowTiles, int64_t columnTiles, const Between &between)
      : k(k), t(t), rowTiles(rowTiles), columnTiles(columnTiles), products(rowTiles * columnTiles), between(between) {}

  // Emits it unless the module has it, and returns its name.
  std::string emit() {
    SmallVector<Type> types = {k.ptr, k.i64, k.ptr, k.i64, k.i64, k.ptr, k.i64, k.i1};
    std::string name = llvm::formatv("product_{0}_{1}x{2}", isInt8(t.products) ? "dottiles" : "tiles", rowTiles * tile,
                                     columnTiles * tile);
    addWork(name, types);
    k.helper(name, types, [&](ValueRange arguments) { emitBody(arguments); });
    return name;
  }

private:
  using Work = std::vector<std::function<void()>>;

  // Adds to the kernel's name and to the types of its arguments what it does between products.
  void addWork(std::string &name, SmallVectorImpl<Type> &types) {
    if (between.panels) {
      name += "_fetching";
      types.append({k.ptr, k.i64});
    }
    for (const Between::Rows &rows : between.rows) {
      name += "_fetching_rows_" + std::to_string(rows.across) + "x" + std::to_string(rows.pairs);
      types.append({k.ptr, k.i64});
    }
    for (const Between::Touched &touched : between.touched) {
      name += "_touching_" + std::to_string(touched.lines) + "x" + std::to_string(touched.rows);
      types.append({k.ptr, k.i64});
    }
    if (between.passes)
      name += "_passing";
    if (between.converts) {
      name += (between.masked ? "_converting_some_" : "_converting_") + std::to_string(t.stride);
      types.append({k.ptr, k.i64});
      if (between.masked)
        types.push_back(k.i64);
    }
    if (between.units) {
      name += "_packing_" + std::to_string(between.units) + (between.packed.isBF16() ? "_bf16" : "");
      types.append({k.ptr, k.i64, k.ptr});
    }
  }

  void emitBody(ValueRange arguments) {
    a = k.at(arguments[0]).inRows(arguments[1]);
    b = k.at(arguments[2]).inRows(arguments[3]);
    View c = k.at(arguments[5]).inRows(arguments[6]);
    Value depth = arguments[4], accumulate = arguments[7];
    aStride = arguments[1];
    aBytes = k.mul(aStride, k.bytes());
    bBytes = k.index(t.panel * k.bytes());
    Value cBytes = k.mul(arguments[6], k.bytes());
    auto eachSum = [&](const std::function<void(int64_t number, const View &p)> &body) {
      for (int64_t i = 0; i < products; ++i)
        body(firstSum + i, c.row(i / columnTiles * tile) + i % columnTiles * tile);
    };
    k.when(
        accumulate, [&] { eachSum([&](int64_t number, const View &p) { load(number, p, cBytes); }); },
        [&] {
          eachSum([&](int64_t number, const View &) { tileInstruction(k, "llvm.x86.tilezero", byte(k, number)); });
        });
    k.loop(0, depth, tile, [&](Value at) {
      Work prefetches, conversions;
      Value step = k.div(at, tile);
      ValueRange others = beginLines(step, arguments.drop_front(8));
      others = addPrefetches(prefetches, step, others);
      addConversions(conversions, at, step, others);
      multiply(at, prefetches, conversions);
    });
    eachSum([&](int64_t number, const View &p) {
      tileInstruction(k, "llvm.x86.tilestored64", {byte(k, number), p.data, cBytes});
    });
  }

  void load(int64_t number, const View &p, Value bytes) {
    tileInstruction(k, "llvm.x86.tileloadd64", {byte(k, number), p.data, bytes});
  }

  // Finds the first lines of the next panels that a step prefetches, as the first of these arguments tell, and returns
  // the others.
  ValueRange beginLines(Value step, ValueRange arguments) {
    if (!between.panels)
      return arguments;
    lines = arguments[1];
    const View first = k.at(arguments[0]).inRows(b.stride) + k.mul(k.mul(step, rowTiles * ofPanel * line), lines);
    nextLines.clear();
    for (int64_t panel = 0; panel < columnTiles / ofPanel; ++panel)
      nextLines.push_back(first.row(k.index(panel)).data);
    return arguments.drop_front(2);
  }

  // Prefetches the lines of a product, of the panel that takes the place of its own.
  void fetchLines(int64_t product) {
    if (!between.panels)
      return;
    Value &next = nextLines[product % columnTiles / ofPanel];
    next = k.loop(0, lines, 1, next, [&](Value, Values s) -> Values {
      k.prefetch(k.at(s[0]));
      return {(k.at(s[0]) + line).data};
    })[0];
  }

  // Adds what else a step prefetches, likewise.
  ValueRange addPrefetches(Work &work, Value step, ValueRange arguments) {
    auto fetch = [&](const View &p) { work.push_back([this, p] { k.prefetch(p); }); };
    for (const Between::Rows &rows : between.rows) {
      View from = k.at(arguments[0]).inRows(arguments[1]);
      arguments = arguments.drop_front(2);
      for (int64_t i = 0; i < rows.pairs; ++i) {
        Value pair = k.add(k.mul(step, rows.pairs), i), column = k.mul(k.rem(pair, rows.across), 2 * line);
        View p = from(k.div(pair, rows.across), column);
        fetch(p);
        fetch(p + line);
      }
    }
    for (const Between::Touched &touched : between.touched) {
      View from = k.at(arguments[0]).inRows(arguments[1]).row(k.mul(step, touched.rows));
      arguments = arguments.drop_front(2);
      for (int64_t r = 0; r < touched.rows; ++r)
        for (int64_t i = 0; i < touched.lines; ++i)
          fetch(from(r, i * line));
    }
    return arguments;
  }

  // Adds the rows that a step converts, or the units that it packs, as these arguments tell.
  void addConversions(Work &work, Value at, Value step, ValueRange arguments) {
    if (between.converts) {
      Value element = k.mul(at, t.pair), stride = arguments[1];
      View from = k.at(arguments[0]) + element;
      SmallVector<Value, 2> masks;
      for (int64_t v = 0; between.masked && v < 2; ++v)
        masks.push_back(k.lanesBelow(k.add(element, v * k.lanes()), arguments[2]));
      arguments = arguments.drop_front(between.masked ? 3 : 2);
      // Each row's address is the previous one's plus the stride, and offsets in scratch are constants: both save
      // registers.
      View to = a + at + rowTiles * tile * t.stride;
      for (int64_t r = 0; r < rowTiles * tile; ++r, from = from + stride)
        work.push_back([=, this] {
          auto half = [&](int64_t v) {
            View p = from + v * k.lanes();
            return masks.empty() ? k.load(p, k.lanes()) : k.loadMasked(p, masks[v]);
          };
          Value first = half(0), second = half(1);
          View place = to + r * t.stride;
          k.store(adjacentPairsOfBF16(k, first, second), place);
        });
    }
    if (between.units) {
      Value unit = k.mul(step, between.units);
      View from = k.at(arguments[0], between.packed).inRows(arguments[1]).row(k.mul(unit, t.pair)),
           to = k.at(arguments[2]) + k.mul(unit, t.panel);
      for (int64_t u = 0; u < between.units; ++u)
        for (int64_t v = 0; v < t.vectors; ++v)
          work.push_back([=, this] {
            auto row = [&](int64_t r) { return k.load(stored(k, from(u * 2 + r, v * k.lanes())), k.lanes()); };
            Value first = row(0), second = row(1);
            View place = to + (u * t.panel + v * k.lanes());
            k.store(unitsOf(k, t, first, second, /*rounds=*/true), place);
          });
    }
  }

  // A step's products, each followed by its lines of the next panels and by its share of both kinds of work.
  void multiply(Value at, const Work &prefetches, const Work &conversions) {
    const char *product = isInt8(t.products) ? "llvm.x86.tdpbusd" : "llvm.x86.tdpbf16ps";
    auto share = [&](const Work &work, int64_t i) {
      for (size_t w = work.size() * i / products; w < work.size() * (i + 1) / products; ++w)
        work[w]();
    };
    for (int64_t i = 0; i < products; ++i) {
      // A single tile of rows needs each right tile once, and two right tiles take turns.
      const int64_t r = i / columnTiles, j = i % columnTiles, left = firstLeft + r, right = firstRight + j % 2;
      if (j == 0) {
        Value row = k.mul(aStride, r * tile);
        View from = a + at + row;
        between.passes ? tileInstruction(k, "llvm.x86.tileloaddt164", {byte(k, left), from.data, aBytes})
                       : load(left, from, aBytes);
      }
      if (r == 0) {
        View panel = b.row(j / ofPanel);
        load(right, panel + k.mul(at, t.panel) + j % ofPanel * tile, bBytes);
      }
      tileInstruction(k, product, {byte(k, firstSum + i), byte(k, left), byte(k, right)});
      fetchLines(i);
      share(prefetches, i);
      share(conversions, i);
    }
  }

  KernelBuilder &k;
  const Tiling &t;
  const int64_t rowTiles, columnTiles, products;
  const int64_t ofPanel = t.panel / tile, line = 64 / k.bytes(); // tiles across a panel; words of a cache line
  const Between &between;
  Value lines;                     // that each product prefetches of a next panel
  SmallVector<Value, 2> nextLines; // of each of these panels, where the next product begins
  View a, b;                       // the operands; the rows of their tiles are so many bytes apart
  Value aStride, aBytes, bBytes;
};

// A product of rows by panels: two tiles of rows at a time, one panel after the other; at last one tile of rows, of all
// panels, if only that is left. All pairs of tiles of a whole block together prefetch the next panel, each a part.
class TiledProduct {
public:
  TiledProduct(KernelBuilder &k, const Tiling &t, const Left &a, const Right &b, int64_t panels, const Term &depth,
               const View &c, Value count, Value accumulate, bool fetchNext, ArrayRef<FetchedRows> fetched,
               const Completion *completion)
      : k(k), t(t), a(a), b(b), panels(panels), depth(depth), c(c), count(count), accumulate(accumulate),
        fetchNext(fetchNext), fetched(fetched), completion(completion), pairs(k.div(k.add(count, tile - 1), 2 * tile)),
        twos(k.mul(pairs, 2 * tile)), all(k.mul(pairs, panels)), remains(k.less(twos, count)) {
    if (!fetchNext)
      return;
    // The nearest number: with seven pairs, for example, two lines each would be nearly twice as many as there are.
    Value shares = k.mul(k.max(pairs, 1), productsOfPair());
    linesOfPair = k.div(k.add(k.div(shares, 2), linesOfStep()), shares);
  }

  void emit(const Ahead &ahead) {
    auto multiply = [&](Value number) {
      const Pair pair = at(number);
      ahead(pair.place, 0);
      multiplyPair(pair);
    };
    if (!completion) {
      k.loop(0, all, 1, multiply);
      k.when(remains, [&] { multiplyLast(); });
      return;
    }
    // The tiles are one product ahead of what completes its sums.
    Value complete = k.add(all, k.select(remains, panels, 0));
    k.loop(0, k.add(complete, 1), 1, [&](Value number) {
      k.when(
          k.less(number, all), [&] { multiply(number); },
          [&] { k.when(k.both(k.equal(number, all), remains), [&] { multiplyLast(); }); });
      k.when(k.less(0, number), [&] { finish(k.sub(number, 1)); });
    });
  }

private:
  // A pair of tiles of rows: its number, and its place in its panel.
  struct Pair {
    Value number, panel, place, row;
  };
  Pair at(Value number) {
    if (panels == 1)
      return {number, k.index(0), number, k.mul(number, 2 * tile)};
    Value panel = k.div(number, k.max(pairs, 1));
    Value place = k.sub(number, k.mul(panel, pairs));
    return {number, panel, place, k.mul(place, 2 * tile)};
  }
  bool inTurns() const { return completion && completion->inTurns; }
  View sumsOf(const Pair &pair) {
    if (inTurns())
      return c + k.mul(k.rem(pair.number, 2), t.panel);
    View rows = c.row(pair.row);
    return rows + k.mul(pair.panel, t.panel);
  }
  View sumsOfLast() { return inTurns() ? c.row(2 * tile) : c.row(twos); }

  void call(Value row, int64_t rowTiles, const View &right, int64_t width, const View &sums, const Between &between,
            ArrayRef<Value> others) {
    View left = a.rows.row(row);
    if (a.last) {
      Value whole = k.mul(k.div(count, t.rows), t.rows), isWhole = k.less(row, whole);
      View last = a.last.row(k.sub(row, whole));
      Value data = k.select(isWhole, left.data, last.data), stride = k.select(isWhole, left.stride, last.stride);
      left = k.at(data).inRows(stride);
    }
    SmallVector<Value> arguments = argumentsOf(k, left, right, depth, sums, accumulate);
    llvm::append_range(arguments, others);
    k.invoke(TileKernel(k, t, rowTiles, width * t.panel / tile, between).emit(), arguments);
  }
  // Pairs, if there are any, have prefetched the panels that come next.
  void multiplyLast() {
    Between between;
    SmallVector<Value> others;
    if (fetchNext) {
      between.panels = true;
      Value lines = k.index(linesOfStep() / (t.panel / tile));
      others = {b.panels.row(panels).data, k.select(k.less(0, pairs), 0, lines)};
    }
    call(twos, 1, b.panels, panels, sumsOfLast(), between, others);
  }
  // The number of cache lines of a panel that a step multiplies.
  int64_t linesOfStep() const { return tile * t.panel * k.bytes() / 64; }
  int64_t productsOfPair() const { return 2 * t.panel / tile; }

  // Multiplies a pair of tiles, which prefetches what rows of `fetched` fall to it if its panel is the first, and
  // prepares what comes next if it is one of those that do.
  void multiplyPair(const Pair &pair, bool isFirst, bool prepares, bool passes) {
    const int64_t steps = t.depth / tile;
    Value stepsBefore = k.mul(pair.place, k.div(k.index(depth), tile));
    Between between;
    SmallVector<Value> others;
    auto append = [&](const View &rows) { others.append({rows.data, k.index(rows.stride)}); };
    between.passes = passes;
    if (fetchNext) {
      between.panels = true;
      Value before = k.mul(k.mul(stepsBefore, productsOfPair() * 64 / k.bytes()), linesOfPair);
      others.append({(b.panels.row(k.add(pair.panel, 1)) + before).data, linesOfPair});
    }
    // Surplus tiles prefetch the last rows again.
    for (const FetchedRows &rows : isFirst ? fetched : ArrayRef<FetchedRows>()) {
      between.rows.push_back({rows.across, (rows.rows * rows.across + steps - 1) / steps});
      append(rows.first(k.min(pair.place, k.max(k.sub(rows.tiles, 1), 0))));
    }
    // More than four lines a step would wait for each other.
    for (const View &rows : completion ? ArrayRef<View>(completion->touched) : ArrayRef<View>()) {
      const int64_t lines = (t.panel * KernelBuilder::bytesOf(rows.element) + 63) / 64;
      between.touched.push_back({lines, std::min(2 * tile / std::min(steps, 2 * tile), 4 / lines)});
      append(asWords(k, rows(pair.row, k.mul(pair.panel, t.panel))));
    }
    if (prepares && a.next.from) {
      between.converts = true;
      append(a.next.from.row(pair.row));
      between.masked = static_cast<bool>(a.next.elements);
      if (between.masked)
        others.push_back(a.next.elements);
    }
    if (prepares && b.next.units) {
      between.units = b.next.units;
      between.packed = b.next.from.element;
      Value unit = k.mul(stepsBefore, between.units);
      append(b.next.from.row(k.mul(unit, t.pair)));
      others.push_back((b.next.to + k.mul(unit, t.panel)).data);
    }
    View right = b.panels.row(pair.panel);
    call(pair.row, 2, right, 1, sumsOf(pair), between, others);
  }
  // The rows of a single pair stay in the first cache, and each panel passes. (A pair that prepares is usually one of
  // several, and its kernel is long.)
  void multiplyPair(const Pair &pair, bool isFirst, bool prepares) {
    if (!a.passes || prepares)
      return multiplyPair(pair, isFirst, prepares, a.passes);
    k.when(
        k.less(1, pairs), [&] { multiplyPair(pair, isFirst, prepares, true); },
        [&] { multiplyPair(pair, isFirst, prepares, false); });
  }
  void multiplyPair(const Pair &pair) {
    auto prepared = [&](bool isFirst) {
      Value preparing = a.next.from ? a.next.tiles : b.next.tiles;
      if (!isFirst || !preparing)
        return multiplyPair(pair, isFirst, false);
      k.when(
          k.less(pair.place, preparing), [&] { multiplyPair(pair, isFirst, true); },
          [&] { multiplyPair(pair, isFirst, false); });
    };
    if (panels == 1)
      prepared(true);
    else
      k.when(k.equal(pair.panel, 0), [&] { prepared(true); }, [&] { prepared(false); });
  }

  // Completes the sums of a pair, or after all pairs those of the last rows, a panel at a time.
  void finish(Value number) {
    const Pair pair = at(number);
    Value isPair = k.less(number, all), lastPanel = k.sub(number, all);
    View sums = sumsOf(pair), last = sumsOfLast();
    last = last + k.mul(lastPanel, t.panel);
    Value row = k.select(isPair, pair.row, twos), panel = k.select(isPair, pair.panel, lastPanel);
    Value rows = k.min(k.sub(count, row), 2 * tile);
    View found = k.at(k.select(isPair, sums.data, last.data)).inRows(c.stride);
    completion->finish(row, rows, panel, found);
  }

  KernelBuilder &k;
  const Tiling &t;
  const Left &a;
  const Right &b;
  const int64_t panels;
  const Term depth;
  const View c;
  Value count, accumulate;
  const bool fetchNext;
  ArrayRef<FetchedRows> fetched;
  const Completion *completion;
  Value pairs, twos, all, remains; // pairs of tiles of rows, the rows they have, pairs of all panels; is a tile left?
  Value linesOfPair;               // how many lines of the next panel each product of a pair prefetches
};

} // namespace

void configureTiles(KernelBuilder &k, const Tiling &t, Value count) {
  if (!isTiled(t.products))
    return;
  // LDTILECFG reads 64 bytes: the palette (1), at 16 the bytes per row of each tile, at 48 the rows of each tile, both
  // for tiles 0, 1, ..
  std::array<int32_t, 16> words = {1};
  std::fill_n(words.begin() + 4, 4, 0x00400040);
  auto type = VectorType::get({16}, k.i32);
  Value constant = arith::ConstantOp::create(k.b, DenseElementsAttr::get(type, ArrayRef<int32_t>(words)));
  // All tiles of left operands and sums have as many rows as there are, if they are few, since a product takes as long
  // as its sums have rows. Right operands always have all rows.
  Value rows = k.truncated(k.min(count, tile));
  auto repeated = [&](int32_t bytes) { return arith::MulIOp::create(k.b, rows, k.i32Of(bytes)); };
  Value right = k.i32Of((tile << 16) | (tile << 24));
  View configuration = k.at(k.onStack(type), k.i32);
  LLVM::StoreOp::create(k.b, constant, configuration.data);
  View rowsOfSums = configuration + 12;
  LLVM::StoreOp::create(k.b, repeated(0x01010101), rowsOfSums.data);
  View rowsOfOperands = configuration + 13;
  LLVM::StoreOp::create(k.b, arith::OrIOp::create(k.b, repeated(0x0101), right), rowsOfOperands.data);
  tileInstruction(k, "llvm.x86.ldtilecfg", configuration.data);
  k.atEnd([&k] { tileInstruction(k, "llvm.x86.tilerelease", {}); });
}

void multiplyTiles(KernelBuilder &k, const Tiling &t, const Left &a, const Right &b, int64_t panels, const Term &depth,
                   const View &c, Value count, Value accumulate, const Ahead &ahead, bool fetchNext,
                   ArrayRef<FetchedRows> fetched, const Completion *completion) {
  TiledProduct(k, t, a, b, panels, depth, c, count, accumulate, fetchNext, fetched, completion).emit(ahead);
}

} // namespace xfc
