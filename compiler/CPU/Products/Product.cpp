// The loops around the micro-kernel.
#include "Product.h"
#include "Int4.h"
#include "Int8.h"

using namespace mlir;

namespace xfc {
namespace {

// A call of Product::compute.
class Multiplication {
public:
  Multiplication(const Product &product, Value row, Value count, Value group, Value end, Value next,
                 const Product::Begin &begin, ArrayRef<Product::Touched> touched, Value holds)
      : p(product), k(product.k), t(product.t), row(row), count(count), group(group), end(end), next(next),
        begin(begin), touched(touched), holds(p.copiesAtOnce() ? holds : Value()), units(t.units(p.inner)),
        last((units - 1) / t.depth * t.depth),
        convertsNext(t.products == Products::Tiles && p.copies && p.x.element == k.element) {}

  void groupByGroup() {
    unlessHeld([&] { copyWholeRows(); });
    eachGroup([&](Value g) { eachBlock([&](const Block &block) { multiply(g, block); }); });
  }
  void blockByBlock() {
    Value whole = k.mul(k.div(count, t.rows), t.rows);
    eachBlock([&](const Block &block) {
      const int64_t elements = block.finish ? p.inner - last * t.pair : block.depth * t.pair;
      unlessHeld([&] {
        Value at = k.mul(block.at, t.pair);
        if (p.copiesLast)
          p.copyRows(row, whole, count, at, elements, 0);
        else
          p.copyRows(row, 0, count, at, elements);
      });
      eachGroup([&](Value g) { multiply(g, block); });
    });
  }

private:
  // `depth` units of the inner dimension, from `at` on. The sums of earlier ones are accumulated, and those of the last
  // ones complete.
  struct Block {
    Value at;
    int64_t depth;
    Value accumulate;
    bool finish;
  };
  void eachBlock(const std::function<void(const Block &)> &body) {
    if (last > 0)
      k.loop(0, last, t.depth, [&](Value at) { body({at, t.depth, k.less(0, at), false}); });
    Value at = k.index(last);
    body({at, units - last, k.boolean(last > 0), true});
  }
  void eachGroup(const std::function<void(Value)> &body) { k.loop(group, end, 1, body); }

  void unlessHeld(const std::function<void()> &copy) {
    holds ? k.when(holds, [] {}, copy) : copy();
  }

  // If tiles convert the next ones, only the first tile of rows is copied here, and the last one if it is not whole.
  void copyWholeRows() {
    Value whole = k.mul(k.div(count, t.rows), t.rows);
    Value first = convertsNext ? k.min(t.rows, count) : count;
    p.copyRows(row, 0, first, 0, p.inner);
    if (convertsNext)
      p.copyRows(row, k.max(first, whole), count, 0, p.inner);
    if (p.copiesLast)
      p.copyRows(row, whole, count, 0, p.inner, 0);
  }

  // Multiplies by a block of the inner dimension of a group of columns.
  void multiply(Value g, const Block &block) {
    View tile = p.tiles() > 1 ? p.c + k.mul(k.sub(g, group), t.block * Tiling::group) : p.c;
    const int64_t tail = p.columns % Tiling::group;
    if (p.columns < Tiling::group)
      multiply(g, block, tile, p.columns);
    else if (!tail)
      multiply(g, block, tile, Tiling::group);
    else
      k.when(
          k.less(g, p.columns / Tiling::group), [&] { multiply(g, block, tile, Tiling::group); },
          [&] { multiply(g, block, tile, tail); });
  }
  void multiply(Value g, const Block &block, const View &tile, int64_t used) {
    const int64_t panelWords = t.panelWords(p.inner);
    View panels = p.packed + k.mul(g, t.unit() * panelWords), b = panels + k.mul(block.at, t.panel);
    const bool tiled = isTiled(t.products);
    Ahead ahead = [&](Value tileOfRows, int64_t panel) {
      if (block.finish && !tiled)
        fetchTouched(g, tileOfRows, panel);
    };
    const FetchedRows rows = fetchedRows(g, block);
    const Left left = leftOf(g, block);
    Right right{b.inRows(panelWords)};
    if (t.byGroup && !tiled)
      right.after = block.finish ? panels + t.unit() * panelWords : b + t.depth * t.panel;
    const Completion completion = completionOf(g, panels, used);
    multiplyPanels(k, t, left, right, t.panels(used), block.depth, tile, count, block.accumulate, ahead,
                   /*fetchNext=*/true, rows, block.finish && tiled ? &completion : nullptr);
    if (block.finish && !tiled)
      k.loop(0, count, 1, [&](Value r) {
        Value column = k.index(0);
        finishRow(g, r, column, tile.row(r), panels, used, Tiling::group);
      });
  }

  void fetchTouched(Value g, Value tileOfRows, int64_t panel) {
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t column = 0; column < t.panel; column += 128 / k.bytes()) {
        Value feature = k.add(k.mul(g, Tiling::group), panel * t.panel + column);
        Value at = k.add(row, k.add(k.mul(tileOfRows, t.rows), r));
        for (const Product::Touched &each : touched)
          each.writes ? k.prefetchForWriting(each.rows(at, feature)) : k.prefetch(each.rows(at, feature));
      }
  }

  // Prefetches what will be copied next: the next rows, or the next block of these rows.
  FetchedRows fetchedRows(Value g, const Block &block) {
    Value nextRow = block.finish || t.byGroup ? next : row;
    Value nextAt = t.byGroup      ? k.mul(block.at, t.pair)
                   : block.finish ? k.index(0)
                                  : k.mul(k.add(block.at, t.depth), t.pair);
    Value tilesBefore = k.mul(k.sub(g, group), t.fetchingTiles());
    const int64_t bytes = KernelBuilder::bytesOf(p.x.element);
    return FetchedRows(k, t, p.x(nextRow, nextAt), t.rowsAhead(p.inner * bytes), t.depth * t.pair * bytes, tilesBefore,
                       t.fetchingTiles(), block.depth, p.turns());
  }

  // While it is multiplied by the first panel, each tile of rows may convert the next whole one. Rows of int8 cannot be
  // converted in parts, since their largest element determines their scale.
  Left leftOf(Value g, const Block &block) {
    const View rows = p.copiesLast ? asWords(k, p.x.row(row)) + block.at
                      : t.whole    ? p.a + k.mul(block.at, t.left)
                      : p.copies   ? p.a
                                   : p.x(row, block.at);
    Left left{rows, t.left, k.mul(rows.stride, t.rows)};
    left.passes = isTiled(t.products);
    if (p.copiesLast)
      left.last = t.whole ? p.a + block.at : p.a;
    if (convertsNext) {
      Value element = k.mul(block.at, t.pair);
      View from = p.x(k.add(row, t.rows), element);
      const int64_t elements = p.inner - last * t.pair;
      Value others = k.max(k.sub(k.div(count, t.rows), 1), 0);
      if (holds)
        others = k.select(holds, 0, others);
      left.next = {from, block.finish && elements < block.depth * t.pair ? k.index(elements) : Value(),
                   k.select(k.equal(g, group), others, 0)};
    }
    return left;
  }

  // How the sums that AMX's tiles make of a group with `used` columns are finished, one panel at a time.
  Completion completionOf(Value g, const View &panels, int64_t used) {
    Completion completion;
    completion.inTurns = p.sumsInTurns();
    for (const Product::Touched &each : touched)
      completion.touched.push_back(each.rows(row, k.mul(g, Tiling::group)).inRows(each.rows.stride));
    completion.finish = [this, g, panels, used](Value first, Value rows, Value panel, const View &sums) {
      auto ofColumns = [&](int64_t of, int64_t room) {
        Value column = k.mul(panel, t.panel);
        View panelOf = panels + k.mul(panel, t.panelWords(p.inner));
        k.loop(0, rows, 1, [&](Value r) {
          Value ofBlock = k.add(first, r);
          finishRow(g, ofBlock, column, sums.row(r), panelOf, of, room);
        });
      };
      if (used == Tiling::group)
        ofColumns(t.panel, t.panel);
      else if (used <= t.panel)
        ofColumns(used, Tiling::group);
      else
        k.when(k.equal(panel, 0), [&] { ofColumns(t.panel, t.panel); }, [&] { ofColumns(used % t.panel, t.panel); });
    };
    return completion;
  }

  // Finishes the sums of a row of `of` columns, from `column` of the group on.
  void finishRow(Value g, Value r, Value column, const View &sums, const View &panels, int64_t of, int64_t room) {
    auto products = [&](int64_t i) {
      Value sum = k.load(sums + i, k.lanes());
      if (!isInteger(t.products))
        return sum;
      if (t.products == Products::Nibbles)
        return scaleInt4(k, t, sum, p.a.row(r));
      View panel = panels + i / t.panel * t.panelWords(p.inner);
      return scaleInt8(k, t, sum, p.a.row(r), p.inner, panel, i % t.panel);
    };
    const Product::Finish finishIt = begin(k.add(row, r));
    finishIt(k.add(k.mul(g, Tiling::group), column), products, of, room);
  }

  const Product &p;
  KernelBuilder &k;
  const Tiling &t;
  Value row, count, group, end, next;
  const Product::Begin &begin;
  ArrayRef<Product::Touched> touched;
  const Value holds;         // whether scratch has the rows already; null: it has not
  const int64_t units, last; // of the inner dimension; where its last block begins
  const bool convertsNext;
};

} // namespace

Product::Product(KernelBuilder &k, const Tiling &t, BufferIndex rows, BufferIndex weight, int64_t inner,
                 int64_t columns, int64_t groups)
    : k(k), t(t), inner(inner), columns(columns), groups(groups), copiesLast(readInPlace(t, rows, inner)) {
  copies = t.products != Products::Elements && !copiesLast;
  x = k.rowsOf(rows);
  packed = k.buffer(weight).as(k.element);
  a = k.scratch.inRows(t.stride);
  c = (a + copiedRows() * t.stride).inRows(Tiling::group);
}

void Product::copyRows(Value row, const Term &begin, Value end, const Term &at, int64_t elements,
                       const Term &to) const {
  Value column = k.index(at);
  View first = a.row(k.index(to));
  k.loop(begin, end, 1, [&](Value r) {
    View from = x(k.add(row, r), column);
    copyLeft(k, t, from, first.row(k.sub(r, begin)), elements);
  });
}

void Product::compute(Value row, Value count, Value group, Value end, Value next, const Begin &begin,
                      ArrayRef<Touched> touched, Value holds) const {
  Multiplication multiplication(*this, row, count, group, end, next, begin, touched, holds);
  t.byGroup ? multiplication.groupByGroup() : multiplication.blockByBlock();
}

} // namespace xfc
