// Gradients of the weights of products, and of their biases.
#include "CPU/Products/MicroKernel.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc {
namespace {

int64_t partsOf(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

// How dW [out, in] is divided into tiles, and what the scratch of a tile holds.
struct WeightTiles {
  bool tiled, rounds; // whether tiles of AMX multiply, and whether operands are rounded to bf16
  Tiling t;
  int64_t out, in, lanes;
  int64_t tilePanels, tileColumns, columnTiles; // panels and columns of a tile; tiles beside each other
  int64_t height, rowTiles, tiles;              // rows of a tile; tiles below each other; tiles of the micro-kernel
  // A column of dy holds `depth` times the micro-kernel's rows. It is stored in overlapping vectors, no wider than
  // necessary (rounding needs whole ones), and has room for the excess of the last one. Its size is an odd number of
  // cache lines, so that columns spread over the cache's sets.
  int64_t line, width, vectors, tileStride;
  // The first tile's product packs each panel if packing is a plain copy, without rounding or masks, and the tile is
  // whole.
  bool packing;
  // While AMX multiplies a panel, it packs the next one, if a block has all its rows and a panel all its columns: the
  // more tiles of dy there are, the fewer units in each step.
  bool packsNext;
  int64_t unitsPerStep, packingTiles;
  // Whole panels accumulate in place. Others accumulate in scratch and are copied. So do those of AMX and, with AVX2,
  // those of a dW whose rows are a multiple of `aliased` bytes apart: in scratch, rows spread over the caches' sets.
  bool spread, inPlace;

  WeightTiles(KernelBuilder &k, LinearWeightGradOp op)
      : tiled(isTiled(gradientProductsFor(k, op.getCompute()))), rounds(op.getCompute().has_value()),
        t(k, depthFor(tiled), gradientProductsFor(k, op.getCompute())), out(op.getDweight().getType().getDimSize(0)),
        in(op.getDweight().getType().getDimSize(1)), lanes(k.lanes()),
        tilePanels(std::min(t.panels(in), 512 / t.panel)), tileColumns(tilePanels * t.panel),
        columnTiles(partsOf(in, tileColumns)), height(heightFor()), rowTiles(partsOf(out, height)),
        tiles(height / t.rows), line(64 / k.bytes()),
        width(rounds ? lanes : std::min<int64_t>(lanes, llvm::PowerOf2Ceil(t.rows))), vectors(partsOf(t.rows, width)),
        tileStride(tiled ? t.rows * t.stride : (partsOf((t.depth - 1) * t.rows + vectors * width, line) | 1) * line),
        packing(!rounds && in % t.panel == 0 && (out % height == 0 || out % height >= t.rows)),
        packsNext(tiled && in % t.panel == 0),
        unitsPerStep(static_cast<int64_t>(llvm::PowerOf2Ceil(partsOf(Tiling::tile, tiles)))),
        packingTiles(Tiling::tile / unitsPerStep),
        spread(tiled || (k.registers() == 16 && in * k.bytes() % aliased == 0)),
        inPlace(in % t.panel == 0 && !spread && !op.getDweight().use_empty()) {}

  // Rows per block. With 128, dy, the panel of x and what is prefetched for the next one share the L2 cache with dW;
  // with 256, the weight gradients of the model small took up to 8 % longer, and with AVX2 up to 16 %.
  // AMX multiplies so fast that loading and storing the sums, once per block, would take half of the L2 cache's
  // bandwidth; with 256, a panel of x (16 KB) still stays in the L1 cache, beside the tiles of dy that pass by and the
  // part of the next panel that is packed meanwhile.
  static int64_t depthFor(bool tiled) { return tiled ? 256 : 128; }
  int64_t depth() const { return depthFor(tiled); }
  // Rows so many bytes apart lie in the same sets of the first cache, and in few of the second. In `bench train
  // --profile` of a layer of base, on a Zen 3, the gradient of a weight of 512x2048 took 0.85 to 0.90 of the time with
  // sums in rows that spread.
  static constexpr int64_t aliased = 4096;
  // The size of a panel of x is one unit more than a power of two, so that the panels of a row, if all are kept, spread
  // over the cache's sets.
  int64_t panelStride() const { return (t.depth + 1) * t.panel; }
  int64_t panelsSize() const { return (packing ? 1 : packsNext ? 2 : tilePanels) * panelStride(); }
  int64_t sumsSize() const { return partsOf(height, lanes) * lanes; } // of biases
  int64_t sumsStride() const { return spread ? tileColumns + Tiling::tile : tileColumns; }
  int64_t scratch() const {
    return tiles * tileStride + panelsSize() + sumsSize() + (inPlace ? 0 : height * sumsStride());
  }

private:
  // Tiles are tall, since each of them packs panels of x, but there are enough of them for some threads. They have
  // similar heights, so that threads get similar work, and their number is even, so that two threads finish together.
  int64_t heightFor() const {
    const int64_t wanted = std::max(partsOf(out, 3 * t.blockOfResults()),
                                    std::min(partsOf(4, columnTiles), partsOf(out, t.blockOfResults())));
    const int64_t even = wanted + (wanted > 1 && wanted % 2 && columnTiles % 2);
    return partsOf(partsOf(out, even), t.rows) * t.rows;
  }
};

// Each chunk owns a tile of dW and processes the rows in blocks, in order: it copies a block's dy into columns as wide
// as the micro-kernel has rows, or transposes it for AMX, and copies its x into panels. In bf16, units are pairs of
// rows. The chunks of the first columns also own db.
class WeightGradient {
public:
  WeightGradient(KernelBuilder &k, LinearWeightGradOp op)
      : k(k), op(op), s(k, op), t(s.t), dy(k.buffer(op.getDyMutable())), x(k.buffer(op.getXMutable())),
        hasBias(op.getDbias() && !op.getDbias().use_empty()) {
    dy.stride = k.stride(op.getDyMutable());
    x.stride = k.stride(op.getXMutable());
    rows = k.rowCount();
    o0 = k.mul(k.div(k.chunk, s.columnTiles), s.height);
    i0 = k.mul(k.rem(k.chunk, s.columnTiles), s.tileColumns);
    outputs = k.min(s.height, k.sub(s.out, o0));
    inputs = k.min(s.tileColumns, k.sub(s.in, i0));
    panels = k.div(k.add(inputs, t.panel - 1), t.panel);
    usedTiles = k.div(k.add(outputs, t.rows - 1), t.rows);
    if (!op.getDweight().use_empty()) {
      Value first = k.mul(o0, s.in);
      dw = (k.buffer(op.getDweight()) + first + i0).inRows(s.in);
    }
    a = k.scratch.inRows(s.tiled ? t.stride : 1);
    b = (a + s.tiles * s.tileStride).inRows(s.panelStride());
    sums = b + s.panelsSize();
    c = s.inPlace ? dw : (sums + s.sumsSize()).inRows(s.sumsStride());
  }

  KernelInfo emit() {
    configureTiles(k, t, k.index(Tiling::tile));
    clear();
    k.loop(0, rows, s.depth(), [&](Value row) {
      Value count = k.min(s.depth(), k.sub(rows, row)), units = t.units(k, count);
      copyDy(row, count);
      View xFrom = x(row, i0);
      Value whole = s.packsNext ? k.equal(count, s.depth()) : Value();
      if (!s.packing && !s.packsNext)
        packRight(k, t, xFrom, count, s.rounds, b, panels, s.in % t.panel ? inputs : Value());
      Value accumulate = k.less(0, row);
      k.loop(0, panels, 1, [&](Value p) {
        if (s.packsNext) {
          Value isFirst = k.equal(p, 0), packsItself = k.either(isFirst, k.less(count, s.depth()));
          k.when(packsItself, [&] {
            View from = xFrom + k.mul(p, t.panel), to = b.row(k.rem(p, 2));
            packRight(k, t, from, count, s.rounds, to, 1);
          });
        }
        multiply({row, count, units, whole, accumulate}, p, xFrom);
      });
    });
    store();
    return {{Partition::Unit::One, 1, s.rowTiles * s.columnTiles}, s.scratch() * k.bytes()};
  }

private:
  // `count` rows of dy and x, from `row` on, and their units. Is it a whole block? (Null: that does not matter.)
  struct Block {
    Value row, count, units, whole, accumulate;
  };

  void whenBias(const std::function<void()> &body) {
    if (hasBias)
      k.when(k.equal(i0, 0), body);
  }

  void clear() {
    whenBias([&] { k.loop(0, s.sumsSize(), s.lanes, [&](Value i) { k.storePart(0, sums + i, s.lanes); }); });
    k.when(k.equal(rows, 0), [&] {
      k.loop(0, outputs, 1, [&](Value o) {
        k.loop(0, k.mul(panels, t.panel), s.lanes, [&](Value i) { k.storePart(0, c(o, i), s.lanes); });
      });
    });
  }

  // Copies a block's dy, and adds it to the sums of biases.
  void copyDy(Value row, Value count) {
    auto transposeRows = [&](bool sum) { transposeLeft(k, t, dy(row, o0), count, outputs, a, sum ? sums : View()); };
    if (!s.tiled) {
      copyRows(row, count);
      whenBias([&] { sumRows(row, count); });
    } else if (hasBias) {
      k.when(k.equal(i0, 0), [&] { transposeRows(true); }, [&] { transposeRows(false); });
    } else {
      transposeRows(false);
    }
  }

  // Runs body(unit, whether all its rows exist) for the units of `count` rows.
  void eachUnit(Value count, const std::function<void(Value, bool)> &body) {
    Value whole = k.div(count, t.pair);
    k.loop(0, whole, 1, [&](Value u) { body(u, true); });
    if (t.pair > 1)
      k.when(k.less(k.mul(whole, t.pair), count), [&] { body(whole, false); });
  }

  void copyRows(Value row, Value count) {
    eachUnit(count, [&](Value u, bool whole) {
      View from = dy(k.add(row, k.mul(u, t.pair)), o0), to = a + k.mul(u, t.rows);
      k.loop(0, usedTiles, 1, [&](Value tile) {
        View source = from + k.mul(tile, t.rows), target = to + k.mul(tile, s.tileStride);
        for (int64_t v = 0; v < s.vectors; ++v) {
          View at = source + v * s.width;
          Value second = t.pair > 1 && whole ? k.load(at + k.index(dy.stride), s.width) : k.splat(0);
          View place = target + v * s.width;
          k.store(unitsOf(k, t, k.load(at, s.width), second, s.rounds), place);
        }
      });
    });
  }

  void sumRows(Value row, Value count) {
    // Sums several vectors at a time to hide the latency of additions.
    auto sumColumns = [&](Value begin, Value end, int64_t together) {
      k.loop(begin, end, together * s.lanes, [&](Value o) {
        View from = dy(row, o0) + o, to = sums + o;
        Values state;
        for (int64_t i = 0; i < together; ++i)
          state.push_back(k.load(to + i * s.lanes, s.lanes));
        state = k.loop(0, count, 1, state, [&](Value r, Values sum) {
          for (int64_t i = 0; i < together; ++i)
            sum[i] = k.addf(sum[i], k.load(from(r, i * s.lanes), s.lanes));
          return sum;
        });
        for (int64_t i = 0; i < together; ++i)
          k.store(state[i], to + i * s.lanes);
      });
    };
    Value most = k.mul(k.div(outputs, 4 * s.lanes), 4 * s.lanes);
    sumColumns(k.index(0), most, 4);
    sumColumns(most, outputs, 1);
  }

  // Multiplies a block by its panel `p` of x, which begins at xFrom + p * panel.
  void multiply(const Block &block, Value p, const View &xFrom) {
    Ahead ahead = [&](Value tile, int64_t) { fetchSums(p, tile); };
    // Meanwhile, the next block of dy is prefetched, and the next panel of x, or its next block unless the first tile
    // packs the panels. The tiles of all panels share the prefetching of a block.
    Value nextBlock = k.add(block.row, s.depth()), last = k.equal(p, k.sub(panels, 1));
    Value nextColumn = k.mul(k.add(p, 1), t.panel), nextPanel = k.select(last, i0, k.add(i0, nextColumn));
    auto ofBlock = [&](const View &from, int64_t columns) {
      const int64_t bytes = columns * KernelBuilder::bytesOf(from.element),
                    most = s.tiled ? s.tiles : partsOf(FetchedRows::tilesFor(t, s.depth(), bytes), s.tilePanels);
      return FetchedRows(k, t, from, s.depth(), bytes, k.mul(p, most), most, t.depth, s.tilePanels);
    };
    const FetchedRows fetched[] = {s.packing ? FetchedRows(k, t, x(k.select(last, nextBlock, block.row), nextPanel),
                                                           s.depth(), t.panel * k.bytes(), 0, s.tiles, t.depth, 1)
                                             : ofBlock(x(nextBlock, i0), s.tileColumns),
                                   ofBlock(dy(nextBlock, o0), s.height)};
    Right right = s.packing ? Right{b.inRows(0), xFrom + k.mul(p, t.panel)}
                            : Right{b.row(s.packsNext ? k.rem(p, 2) : p).inRows(0)};
    Value packs = s.packsNext ? k.both(block.whole, k.less(k.add(p, 1), panels)) : Value();
    if (s.packsNext)
      right.next = {xFrom + nextColumn, b.row(k.rem(k.add(p, 1), 2)), k.select(packs, s.packingTiles, 0),
                    s.unitsPerStep};
    multiplyPanels(k, t, {a, s.tiled ? 1 : t.rows, s.tileStride, {}, {}, s.tiled}, right, 1, block.units,
                   c + k.mul(p, t.panel), outputs, block.accumulate, ahead, /*fetchNext=*/false, fetched);
    if (s.packsNext && s.out % s.height)
      k.when(packs, [&] { packRest(right.next, block.count); });
  }

  void fetchSums(Value p, Value tile) {
    Value lastTile = k.sub(usedTiles, 1), next = k.mul(k.min(k.add(tile, 1), lastTile), t.rows);
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t column = 0; column < t.panel; column += s.line) {
        Value feature = k.add(k.mul(p, t.panel), column);
        k.prefetchForWriting(c(k.add(next, r), feature));
      }
  }

  // The last chunk may have fewer tiles of dy, too few to pack the whole next panel. Packs the rest.
  void packRest(const NextPanel &panel, Value count) {
    Value tilesThatPacked = k.min(k.div(k.add(outputs, Tiling::tile - 1), t.rows), s.packingTiles);
    Value done = k.mul(tilesThatPacked, s.unitsPerStep * (t.depth / Tiling::tile));
    View to = panel.to + k.mul(done, t.panel);
    Value rest = k.sub(count, k.mul(done, t.pair));
    packRight(k, t, panel.from.row(k.mul(done, t.pair)), rest, s.rounds, to.inRows(0), 1);
  }

  void store() {
    if (dw && !s.inPlace)
      storeSums();
    whenBias([&] {
      k.loop(0, outputs, s.lanes, [&](Value o) {
        Value used = k.lanesBelow(o, outputs);
        View place = k.buffer(op.getDbias()) + o0 + o;
        k.storeMasked(k.load(sums + o, s.lanes), place, used);
      });
    });
  }

  // Copies the tile of dW out of scratch. The optimizer reads it much later, after all other gradients.
  void storeSums() {
    auto copy = [&](const std::function<void(Value i, Value value, const View &to)> &storeVector) {
      k.loop(0, outputs, 1, [&](Value o) {
        View from = c.row(o), to = dw.row(o);
        k.loop(0, inputs, s.lanes, [&](Value i) {
          View place = to + i;
          storeVector(i, k.load(from + i, s.lanes), place);
        });
      });
    };
    auto copyParts = [&] {
      copy([&](Value i, Value value, const View &to) { k.storeMasked(value, to, k.lanesBelow(i, inputs)); });
    };
    if (s.in % s.lanes)
      return copyParts();
    Value address = LLVM::PtrToIntOp::create(k.b, k.i64, dw.data), offset = k.rem(address, s.lanes * k.bytes());
    k.when(
        k.equal(offset, 0),
        [&] {
          copy([&](Value, Value value, const View &to) { k.storePastCaches(value, to); });
          k.completeStores();
        },
        copyParts);
  }

  KernelBuilder &k;
  LinearWeightGradOp op;
  const WeightTiles s;
  const Tiling &t;
  View dy, x;
  const bool hasBias;
  Value rows, o0, i0;      // the rows of dy and x; where the tile begins
  Value outputs, inputs;   // rows and columns of the tile
  Value panels, usedTiles; // of x, and of dy
  View dw;                 // the tile; null if it is not wanted
  // In scratch: columns of dy of which the micro-kernel's rows are adjacent, or rows of units; panels of x; the sums of
  // biases, and those of the tile, unless it accumulates in place.
  View a, b, sums, c;
};

} // namespace

static KernelInfo emitLinearWeightGrad(KernelBuilder &k, LinearWeightGradOp op) { return WeightGradient(k, op).emit(); }

void attachLinearWeightGradKernels(MLIRContext &context) { attachKernels<emitLinearWeightGrad>(context); }

} // namespace xfc
