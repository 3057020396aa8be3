// Copies, transposes and small dense products over scratch, from which the attention kernels are made.
#include "AttentionTiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <utility>

using namespace mlir;

namespace xfc {

AttentionTiles::AttentionTiles(KernelBuilder &k, std::optional<ComputeType> compute, int64_t widest) : k(k) {
  if (compute)
    tiling.emplace(k, widest, productsFor(k, compute));
}

// A sequence has fewer rows than the kernels of weights take together, so tiles always have all their rows.
static int64_t tiledRows(int64_t rows) { return (rows + Tiling::tile - 1) / Tiling::tile * Tiling::tile; }

void AttentionTiles::prepare(const Area &area, int64_t rows) {
  if (!tiling)
    return;
  left = area(tiledRows(rows) * tiling->stride);
  configureTiles(k, *tiling, k.index(Tiling::tile));
}

AttentionTiles::Right AttentionTiles::right(const Area &area, int64_t rows, int64_t columns, int64_t stride) const {
  Right b{area(rows * stride).inRows(stride)};
  if (tiling) {
    // An odd number of units, so that panels spread over the cache's sets.
    b.panelStride = (tiling->units(rows) + 1) * tiling->panel;
    b.panels = area(tiling->panels(columns) * b.panelStride).inRows(b.panelStride);
  }
  return b;
}

void AttentionTiles::round(const Right &b, const Term &depth, const Term &vectors) {
  if (!tiling)
    return;
  const std::string name = "round_right" + std::to_string(b.panelStride);
  k.helper(name, {k.ptr, k.i64, k.i64, k.i64, k.ptr}, [&](ValueRange args) {
    packRight(k, *tiling, k.at(args[0]).inRows(args[1]), args[2], /*rounds=*/true, k.at(args[4]).inRows(b.panelStride),
              args[3]);
  });
  Value panels = k.div(k.add(k.mul(vectors, k.lanes()), tiling->panel - 1), tiling->panel);
  k.invoke(name, {b.rows.data, k.index(b.rows.stride), k.index(depth), panels, b.panels.data});
}

int64_t AttentionTiles::padded(int64_t features) const {
  KernelBuilder::SumLanes wide(k);
  const int64_t unit = tiling ? tiling->panel : k.lanes();
  return (features + unit - 1) / unit * unit;
}

Value AttentionTiles::rounded(Value x) const { return tiling ? roundToBF16(k, x) : x; }

Value AttentionTiles::vectorsOf(Value count) { return k.div(k.add(count, k.lanes() - 1), k.lanes()); }

//===--------------------------------------------------------------------------------------------------------===//
// Sequences and heads
//===--------------------------------------------------------------------------------------------------------===//

HeadOfSequence HeadOfSequence::ofChunk(KernelBuilder &k, int64_t heads) {
  Value sequence = k.div(k.chunk, heads), head = k.rem(k.chunk, heads);
  return {k, sequence, head};
}

void HeadOfSequence::eachSharing(KernelBuilder &k, int64_t sharing, const std::function<void()> &body) {
  eachSharing(k, sharing, {}, [&](const Values &) -> Values {
    body();
    return {};
  });
}

Value HeadOfSequence::first(KernelBuilder &k, Value query, Value from) {
  return reach ? k.max(k.sub(AttentionHead::first(k, query), from), 0) : k.index(0);
}

Value HeadOfSequence::limit(KernelBuilder &k, Value query, Value from) {
  return k.max(k.sub(AttentionHead::limit(k, query), from), 0);
}

Value HeadOfSequence::seen(KernelBuilder &k, Value j, Value first, Value limit, Value x, Value hidden) {
  x = k.select(k.lanesBelow(j, limit), x, hidden);
  return reach ? k.select(k.lanesBelow(j, first), hidden, x) : x;
}

Value HeadOfSequence::largestLimit(KernelBuilder &k, Value from, Value count) {
  Value end = k.add(from, count), zero = k.index(0);
  return k.loop(from, end, 1, zero, [&](Value i, Values s) -> Values { return {k.max(s[0], limit(k, i, zero))}; })[0];
}

// The rows of a buffer, from the first feature of a head on.
static View ofHead(KernelBuilder &k, BufferIndex buffer, Value head, int64_t width) {
  Value first = k.mul(head, width);
  View data = k.buffer(buffer) + first;
  return data.inRows(k.stride(buffer));
}

RowAt HeadOfSequence::rows(KernelBuilder &k, BufferIndex buffer, int64_t width, Value first) {
  return [&k, data = ofHead(k, buffer, head, width), first](Value j) { return data.row(k.add(first, j)); };
}

RowAt HeadOfSequence::listedRows(KernelBuilder &k, BufferIndex buffer, int64_t width, Value start,
                                 std::optional<BufferIndex> scales) {
  View data = ofHead(k, buffer, keyHead, width), list = keyList + start;
  View factors = scales ? ofHead(k, *scales, keyHead, 1) : View();
  return [&k, data, list, factors](Value j) {
    Value row = k.loadIndex(list + j);
    return factors ? data.row(row).times(k.load(factors.row(row))) : data.row(row);
  };
}

void HeadOfSequence::fetchNextHead(KernelBuilder &k, ArrayRef<Features> ofQueries, ArrayRef<Features> ofKeys,
                                   Value query) {
  for (const auto &[buffer, width] : ofQueries)
    fetch(k, rows(k, buffer, width, firstQuery)(query) + width, width);
  Value key = k.min(query, k.sub(keys, 1));
  for (const auto &[buffer, width] : ofKeys)
    fetch(k, listedRows(k, buffer, width, k.index(0))(key) + width, width);
}

void HeadOfSequence::fetch(KernelBuilder &k, const View &features, int64_t width) {
  const int64_t line = 64 / KernelBuilder::bytesOf(features.element);
  for (int64_t f = 0; f < width; f += line)
    k.prefetch(features + f);
}

void HeadOfSequence::clearRowsThatAreNoKeys(KernelBuilder &k, BufferIndex buffer, int64_t width) {
  Value offsets = k.field(k.keyRows(), offsetof(xfc_rows, offsets), k.ptr);
  Value first = k.loadI32(offsets, sequence), count = k.sub(k.loadI32(offsets, k.add(sequence, 1)), first);
  View data = ofHead(k, buffer, keyHead, width);
  RowAt row = [&](Value j) { return data.row(k.add(first, j)); };
  k.when(k.less(keys, count), [&] { AttentionTiles(k).zeroOut(row, count, width); });
}

//===--------------------------------------------------------------------------------------------------------===//
// Distances
//===--------------------------------------------------------------------------------------------------------===//

Distances::Distances(KernelBuilder &k, HeadOfSequence &at, const View &line, int64_t distances)
    : k(k), at(at), middle(line + (distances - 1)), distances(distances) {}

// A sequence has as many distances as rows. A query of a cached sequence sees only itself and the keys before it.
void Distances::copyIn(BufferIndex table, int64_t heads) {
  Value first = k.mul(at.head, 2);
  View from = k.buffer(table) + first;
  Value before = k.add(at.queryPosition(k, k.sub(at.queries, 1)), 1), after = at.cached ? at.keys : at.queries;
  auto copy = [&](Value t, int64_t direction, const View &to) {
    k.store(k.load(from + k.add(k.mul(t, 2 * heads), direction)), to);
  };
  k.loop(0, before, 1, [&](Value t) { copy(t, 0, middle + k.sub(0, t)); });
  k.loop(1, k.min(after, distances), 1, [&](Value t) { copy(t, 1, middle + t); });
}

void Distances::clear() {
  k.loop(k.sub(1, at.queries), at.queries, 1, [&](Value t) { k.store(0, middle + t); });
}

void Distances::copyOut(BufferIndex rows) {
  RowAt row = at.rows(k, rows, 2, at.firstQuery);
  k.loop(0, at.queries, 1, [&](Value t) {
    Value isAfter = k.less(0, t), after = k.load(middle + t);
    View to = row(t);
    k.store(k.load(middle + k.sub(0, t)), to);
    View second = to + 1;
    k.store(k.select(isAfter, after, 0), second); // no key is 0 positions after the query
  });
}

// Runs body(index from `start` on, place in the line, lanes): by vectors for keys at consecutive positions, which is
// the usual case (no pad tokens among them), and otherwise key by key.
void Distances::each(Value query, Value start, Value count,
                     const std::function<void(Value, const View &, int64_t)> &body) {
  Value last = k.sub(count, 1), first = at.keyPosition(k, start);
  View line = middle + k.sub(0, at.queryPosition(k, query));
  auto vectors = [&] {
    View from = line + first;
    k.loop(0, count, k.lanes(), [&](Value j) { body(j, from + j, k.lanes()); });
  };
  if (at.cached)
    return vectors();
  k.when(k.equal(k.sub(at.keyPosition(k, k.add(start, last)), first), last), vectors,
         [&] { k.loop(0, count, 1, [&](Value j) { body(j, line + at.keyPosition(k, k.add(start, j)), 1); }); });
}

// to += from, for a scalar or a vector.
static void addTogether(KernelBuilder &k, const View &to, const View &from, int64_t lanes) {
  auto load = [&](const View &p) { return lanes == 1 ? k.load(p) : k.load(p, lanes); };
  Value more = load(from);
  k.store(k.addf(load(to), more), to);
}

void Distances::addTo(const View &row, Value query, Value start, Value count) {
  each(query, start, count, [&](Value j, const View &place, int64_t lanes) { addTogether(k, row + j, place, lanes); });
}

void Distances::addFrom(const View &row, Value query, Value start, Value count) {
  each(query, start, count, [&](Value j, const View &place, int64_t lanes) { addTogether(k, place, row + j, lanes); });
}

//===--------------------------------------------------------------------------------------------------------===//
// Copies
//===--------------------------------------------------------------------------------------------------------===//

void AttentionTiles::copyIn(const View &scratch, const RowAt &row, Value count, int64_t features,
                            std::optional<double> factor) {
  KernelBuilder::SumLanes wide(k);
  const int64_t lanes = k.lanes();
  k.loop(0, count, 1, [&](Value j) {
    View from = row(j), to = scratch.row(j);
    for (int64_t f = 0; f < features; f += lanes) {
      Value x = k.loadPart(from + f, std::min(lanes, features - f));
      View place = to + f;
      k.store(factor ? k.mulf(x, *factor) : x, place);
    }
  });
}

void AttentionTiles::transposeIn(const View &scratch, const RowAt &row, Value count, int64_t features) {
  const int64_t lanes = k.lanes();
  Value last = k.sub(count, 1);
  k.loop(0, count, lanes, [&](Value j) {
    SmallVector<View> from;
    for (int64_t i = 0; i < lanes; ++i)
      from.push_back(row(k.min(k.add(j, i), last)));
    View to = scratch + j;
    auto block = [&](Value f, int64_t used) {
      SmallVector<Value> tile;
      for (const View &start : from)
        tile.push_back(k.load(start + f, lanes));
      k.transpose(tile);
      View out = to.row(f);
      for (int64_t i = 0; i < used; ++i)
        k.store(tile[i], out.row(i));
    };
    int64_t whole = features / lanes * lanes;
    k.loop(0, whole, lanes, [&](Value f) { block(f, lanes); });
    if (whole < features)
      block(k.index(whole), features - whole);
  });
}

void AttentionTiles::copyOut(const RowAt &row, const View &scratch, Value count, int64_t features,
                             const RowFactor &factor, bool accumulate) {
  const int64_t lanes = k.lanes();
  k.loop(0, count, 1, [&](Value j) {
    View to = row(j), from = scratch.row(j);
    Value factors = factor ? k.broadcast(factor(j)) : Value();
    for (int64_t f = 0; f < features; f += lanes) {
      Value x = k.load(from + f, lanes);
      View place = to + f;
      if (factor)
        x = k.mulf(x, factors);
      if (accumulate)
        x = k.addf(k.load(place, lanes), x);
      k.storePart(x, place, std::min(lanes, features - f));
    }
  });
}

void AttentionTiles::zeroOut(const RowAt &row, Value count, int64_t features) {
  const int64_t lanes = k.lanes();
  k.loop(0, count, 1, [&](Value j) {
    View to = row(j);
    for (int64_t f = 0; f < features; f += lanes)
      k.storePart(0, to + f, std::min(lanes, features - f));
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Products
//===--------------------------------------------------------------------------------------------------------===//

// With two columns of vectors, a tile takes 12 accumulators of 16 registers, or 16 of 32 (AVX-512).
static int64_t tileRows(KernelBuilder &k) { return k.registers() >= 32 ? 8 : 6; }

// Arguments: a, its stride, b, its stride, c, its stride, depth, accumulate.
std::string AttentionTiles::tile(bool transposed, int64_t rows, int64_t columns) {
  std::string name =
      std::string("tile_") + (transposed ? "t" : "n") + std::to_string(rows) + "x" + std::to_string(columns);
  Type ptr = k.ptr, i64 = k.i64;
  k.helper(name, {ptr, i64, ptr, i64, ptr, i64, i64, k.i1}, [&](ValueRange args) {
    const int64_t lanes = k.lanes(), unroll = 4;
    View a = k.at(args[0]), b = k.at(args[2]), c = k.at(args[4]);
    Value aStride = args[1], bStride = args[3], cStride = args[5], depth = args[6], accumulate = args[7];
    SmallVector<View> aRows{a}, cRows{c};
    for (int64_t r = 1; r < rows; ++r) {
      aRows.push_back(transposed ? a + r : aRows.back() + aStride);
      cRows.push_back(cRows.back() + cStride);
    }
    // The loop state: the accumulators, the address of b's row and, if transposed, that of a's row.
    Values state(rows * columns, k.splat(0));
    state.push_back(b.data);
    if (transposed)
      state.push_back(a.data);
    auto steps = [&](Value i, Values s, int64_t count) {
      const int64_t n = rows * columns;
      for (int64_t u = 0; u < count; ++u) {
        View bRow = k.at(s[n]), aRow = transposed ? k.at(s[n + 1]) : View();
        SmallVector<Value> bs;
        for (int64_t j = 0; j < columns; ++j)
          bs.push_back(k.load(bRow + j * lanes, lanes));
        for (int64_t r = 0; r < rows; ++r) {
          Value x = k.broadcast(k.load(transposed ? aRow + r : aRows[r] + i + u));
          for (int64_t j = 0; j < columns; ++j)
            s[r * columns + j] = k.fma(x, bs[j], s[r * columns + j]);
        }
        s[n] = (bRow + bStride).data;
        if (transposed)
          s[n + 1] = (aRow + aStride).data;
      }
      return s;
    };
    Value whole = k.mul(k.div(depth, unroll), unroll);
    state = k.loop(0, whole, unroll, state, [&](Value i, Values s) { return steps(i, std::move(s), unroll); });
    state = k.loop(whole, depth, 1, state, [&](Value i, Values s) { return steps(i, std::move(s), 1); });
    state.resize(rows * columns);
    state = k.choose(
        accumulate,
        [&] {
          Values sums;
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < columns; ++j)
              sums.push_back(k.addf(k.load(cRows[r] + j * lanes, lanes), state[r * columns + j]));
          return sums;
        },
        [&] { return state; });
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < columns; ++j)
        k.store(state[r * columns + j], cRows[r] + j * lanes);
  });
  return name;
}

// Arguments: a, its stride, b, its stride, c, its stride, rows, vectors, depth, accumulate.
std::string AttentionTiles::driver(bool transposed) {
  std::string name = std::string("product_") + (transposed ? "t" : "n");
  Type ptr = k.ptr, i64 = k.i64;
  k.helper(name, {ptr, i64, ptr, i64, ptr, i64, i64, i64, i64, k.i1}, [&](ValueRange args) {
    const int64_t lanes = k.lanes(), most = tileRows(k);
    View a = k.at(args[0]).inRows(args[1]), b = k.at(args[2]), c = k.at(args[4]).inRows(args[5]);
    Value rows = args[6], vectors = args[7], depth = args[8], accumulate = args[9];
    Value whole = k.mul(k.div(rows, most), most), rest = k.sub(rows, whole);
    auto columnsAt = [&](Value vector, int64_t columns) {
      Value f = k.mul(vector, lanes);
      auto call = [&](Value row, int64_t count) {
        View left = transposed ? a + row : a.row(row), right = b + f, sums = c(row, f);
        k.invoke(tile(transposed, count, columns),
                 {left.data, args[1], right.data, args[3], sums.data, args[5], depth, accumulate});
      };
      k.loop(0, whole, most, [&](Value row) { call(row, most); });
      for (int64_t count = 1; count < most; ++count)
        k.when(k.equal(rest, count), [&] { call(whole, count); });
    };
    Value pairs = k.mul(k.div(vectors, 2), 2);
    k.loop(0, pairs, 2, [&](Value vector) { columnsAt(vector, 2); });
    k.when(k.less(pairs, vectors), [&] { columnsAt(pairs, 1); });
  });
  return name;
}

// Like `driver`, but b are panels and their stride, and there is one more argument: where to put the left operand,
// which is rounded as rows of pairs.
std::string AttentionTiles::roundingDriver(bool transposed) {
  const Tiling &t = *tiling;
  std::string name = std::string("rounding_product_") + (transposed ? "t" : "n") + std::to_string(t.stride);
  Type ptr = k.ptr, i64 = k.i64;
  k.helper(name, {ptr, i64, ptr, i64, ptr, i64, i64, i64, i64, k.i1, ptr}, [&](ValueRange args) {
    const int64_t lanes = k.lanes();
    View a = k.at(args[0]).inRows(args[1]), b = k.at(args[2]).inRows(args[3]), c = k.at(args[4]).inRows(args[5]);
    Value rows = args[6], vectors = args[7], depth = args[8], accumulate = args[9];
    View as = k.at(args[10]).inRows(t.stride);
    Value units = t.units(k, depth);
    if (transposed)
      transposeLeft(k, t, a, depth, rows, as, {});
    else
      k.loop(0, rows, 1, [&](Value row) {
        View from = a.row(row), to = as.row(row);
        auto convert = [&](Value u, llvm::function_ref<Value(Value f)> load) {
          Value f = k.mul(u, t.pair), first = load(f), second = load(k.add(f, lanes));
          View place = to + u;
          k.store(adjacentPairsOfBF16(k, first, second), place);
        };
        Value whole = k.mul(k.div(depth, 2 * lanes), lanes); // units of vectors without padding
        k.loop(0, whole, lanes, [&](Value u) { convert(u, [&](Value f) { return k.load(from + f, lanes); }); });
        k.loop(whole, units, lanes, [&](Value u) {
          convert(u, [&](Value f) {
            Value mask = k.lanesBelow(f, depth);
            return k.loadMasked(from + f, mask);
          });
        });
      });
    k.loop(0, k.mul(vectors, lanes), t.panel, [&](Value column) {
      const xfc::Right panel{b.row(k.div(column, t.panel)).inRows(0)};
      multiplyPanels(k, t, {as, 1}, panel, 1, units, c + column, rows, accumulate, [](Value, int64_t) {});
    });
  });
  return name;
}

void AttentionTiles::product(const View &a, bool transposed, const Right &b, const View &c, Value rows,
                             const Term &vectors, const Term &depth, bool accumulate) {
  SmallVector<Value> arguments;
  for (const View &matrix : {a, tiling ? b.panels : b.rows, c})
    arguments.append({matrix.data, k.index(matrix.stride)});
  arguments.append({rows, k.index(vectors), k.index(depth), k.boolean(accumulate)});
  if (tiling)
    arguments.push_back(left.data);
  k.invoke(tiling ? roundingDriver(transposed) : driver(transposed), arguments);
}

//===--------------------------------------------------------------------------------------------------------===//
// Dropout
//===--------------------------------------------------------------------------------------------------------===//

// Eight Philox counters give the numbers of 64 positions. Keys at consecutive positions that start at a multiple of 64,
// which is the usual case (no pad tokens among them), therefore need only an eighth of the counters that keys at
// arbitrary positions need.
void AttentionTiles::keepFactors(const View &factors, HeadOfSequence &at, Value query, Value start, Value count,
                                 double rate) {
  const int64_t lanes = k.lanes();
  Value queryRow = k.add(at.firstQuery, query);
  Value position = k.loadI32(k.field(k.rows(), offsetof(xfc_rows, positions), k.ptr), queryRow);
  Value sentence = k.loadI32(k.field(k.rows(), offsetof(xfc_rows, sentences), k.ptr), at.sequence);
  Value keyPositions = k.field(k.keyRows(), offsetof(xfc_rows, positions), k.ptr), headPlusOne = k.add(at.head, 1);
  KernelBuilder::DropoutRow ofQuery = k.dropoutRow(position, sentence, headPlusOne);
  auto positionOf = [&](Value j) { return k.loadI32(keyPositions, k.loadIndex(at.keyList + k.add(start, j))); };
  Value last = k.sub(count, 1), first = positionOf(k.index(0)), aligned = k.equal(k.rem(first, 64), 0);
  Value consecutive = k.both(k.equal(k.sub(positionOf(last), first), last), aligned);
  k.when(
      consecutive,
      [&] {
        k.loop(0, count, 64, [&](Value j) {
          const std::array<Value, 4> words = k.wordsOf64(ofQuery, k.add(first, j));
          for (int64_t i = 0; i < 64; i += lanes) {
            View place = factors + j + i;
            k.store(k.keepFactor(k.randomNumbers(words, i), rate), place);
          }
        });
      },
      [&] {
        k.loop(0, count, 1, [&](Value j) {
          Value f = positionOf(j), within = k.rem(f, 8), word = k.div(k.rem(f, 64), 16);
          Value counter = k.add(k.mul(k.div(f, 64), 8), within);
          auto numbers = k.philox(ofQuery, k.broadcast(k.truncated(counter)));
          Value number = numbers[3];
          for (int64_t w = 2; w >= 0; --w)
            number = k.select(k.equal(word, w), numbers[w], number);
          Value lower = k.lowerHalves(number);
          number = k.select(k.less(k.rem(f, 16), 8), lower, number);
          View place = factors + j;
          k.store(k.lane(k.keepFactor(number, rate), 0), place);
        });
      });
}

} // namespace xfc
