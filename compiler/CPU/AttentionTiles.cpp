// Copies, transposes and small dense products over scratch, from which the attention kernels are made.
#include "AttentionTiles.h"
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
  Right b{{area(rows * stride), k.index(stride)}, {}, 0};
  if (tiling) {
    // An odd number of units, so that panels spread over the cache's sets.
    b.panelStride = (tiling->units(rows) + 1) * tiling->panel;
    b.panels = area(tiling->panels(columns) * b.panelStride);
  }
  return b;
}

void AttentionTiles::round(const Right &b, Value depth, Value vectors) {
  if (!tiling)
    return;
  const std::string name = "round_right" + std::to_string(b.panelStride);
  k.helper(name, {k.ptr, k.i64, k.i64, k.i64, k.ptr}, [&](ValueRange args) {
    packRight(k, *tiling, args[0], args[1], args[2], /*rounds=*/true, args[4], args[3], k.index(b.panelStride));
  });
  Value panels = k.div(k.add(k.mul(vectors, k.lanes()), tiling->panel - 1), tiling->panel);
  k.invoke(name, {b.rows.data, b.rows.stride, depth, panels, b.panels});
}

int64_t AttentionTiles::padded(int64_t features) const {
  KernelBuilder::SumLanes wide(k);
  const int64_t unit = tiling ? tiling->panel : k.lanes();
  return (features + unit - 1) / unit * unit;
}

Value AttentionTiles::rounded(Value x) const { return tiling ? roundToBF16(k, x) : x; }

Value AttentionTiles::vectorsOf(Value count) { return k.div(k.add(count, k.index(k.lanes() - 1)), k.lanes()); }

//===--------------------------------------------------------------------------------------------------------===//
// Sequences and heads
//===--------------------------------------------------------------------------------------------------------===//

HeadOfSequence::HeadOfSequence(KernelBuilder &k, int64_t heads, bool cached) : cached(cached) {
  sequence = k.div(k.chunk, heads);
  head = keyHead = k.rem(k.chunk, heads);
  Value offsets = k.field(k.rows(), offsetof(xfc_rows, offsets), k.ptr);
  firstQuery = k.loadI32(offsets, sequence);
  queries = k.sub(k.loadI32(offsets, k.add(sequence, 1)), firstQuery);
  Value structure = k.keys();
  Value begin = k.loadI32(k.field(structure, offsetof(xfc_keys, begin), k.ptr), sequence);
  keyList = k.offset(k.field(structure, offsetof(xfc_keys, keys), k.ptr), begin, k.i32);
  keys = k.loadI32(k.field(structure, offsetof(xfc_keys, count), k.ptr), sequence);
  limits = k.offset(k.field(structure, offsetof(xfc_keys, limit), k.ptr), firstQuery, k.i32);
}

void HeadOfSequence::shareKeys(KernelBuilder &k, int64_t sharing) {
  if (sharing > 1)
    keyHead = k.div(head, sharing);
}

void HeadOfSequence::eachSharing(KernelBuilder &k, int64_t sharing, const std::function<void()> &body) {
  if (sharing == 1)
    return body();
  k.loop(k.index(0), k.index(sharing), 1, [&](Value i) {
    head = k.add(k.mul(keyHead, sharing), i);
    body();
  });
  head = keyHead;
}

void HeadOfSequence::setReach(KernelBuilder &k, std::optional<uint64_t> distance) {
  if (!distance)
    return;
  reach = static_cast<int64_t>(*distance);
  positions =
      cached ? KeyPositions::numbered(keys) : KeyPositions(k, keys, [&](Value key) { return keyPosition(k, key); });
}

Value HeadOfSequence::queryPosition(KernelBuilder &k, Value query) {
  return k.loadI32(k.field(k.rows(), offsetof(xfc_rows, positions), k.ptr), k.add(firstQuery, query));
}

Value HeadOfSequence::keyPosition(KernelBuilder &k, Value key) {
  return cached ? key : k.loadI32(k.field(k.keyRows(), offsetof(xfc_rows, positions), k.ptr), k.loadI32(keyList, key));
}

Value HeadOfSequence::keysBefore(KernelBuilder &k, Value position) {
  return positions.before(k, position, [&](Value key) { return keyPosition(k, key); });
}

Value HeadOfSequence::first(KernelBuilder &k, Value i, Value from) {
  if (!reach)
    return k.index(0);
  return k.max(k.sub(keysBefore(k, k.sub(queryPosition(k, i), k.index(*reach))), from), k.index(0));
}

Value HeadOfSequence::limit(KernelBuilder &k, Value i, Value from) {
  Value limit = k.min(k.loadI32(limits, i), keys);
  if (reach)
    limit = k.min(limit, keysBefore(k, k.add(queryPosition(k, i), k.index(*reach + 1))));
  return k.max(k.sub(limit, from), k.index(0));
}

Value HeadOfSequence::seen(KernelBuilder &k, Value j, Value first, Value limit, Value x, Value hidden) {
  x = k.select(k.lanesBelow(j, limit), x, hidden);
  return reach ? k.select(k.lanesBelow(j, first), hidden, x) : x;
}

Value HeadOfSequence::largestLimit(KernelBuilder &k, Value from, Value count) {
  return k.loop(from, k.add(from, count), 1, ValueRange{k.index(0)},
                [&](Value i, Values s) -> Values { return {k.max(s[0], limit(k, i, k.index(0)))}; })[0];
}

RowAt HeadOfSequence::rows(KernelBuilder &k, BufferIndex buffer, int64_t width, Value first) {
  Value data = k.offset(k.buffer(buffer), k.mul(head, width)), stride = k.stride(buffer);
  return [&k, data, stride, first](Value j) { return k.offset(data, k.mul(k.add(first, j), stride)); };
}

RowAt HeadOfSequence::listedRows(KernelBuilder &k, BufferIndex buffer, int64_t width, Value start) {
  Value data = k.offset(k.buffer(buffer), k.mul(keyHead, width)), stride = k.stride(buffer);
  Value list = k.offset(keyList, start, k.i32);
  return [&k, data, stride, list](Value j) { return k.offset(data, k.mul(k.loadI32(list, j), stride)); };
}

void HeadOfSequence::clearRowsThatAreNoKeys(KernelBuilder &k, BufferIndex buffer, int64_t width) {
  Value offsets = k.field(k.keyRows(), offsetof(xfc_rows, offsets), k.ptr);
  Value first = k.loadI32(offsets, sequence), count = k.sub(k.loadI32(offsets, k.add(sequence, 1)), first);
  Value data = k.offset(k.buffer(buffer), k.mul(keyHead, width)), stride = k.stride(buffer);
  RowAt row = [&](Value j) { return k.offset(data, k.mul(k.add(first, j), stride)); };
  k.when(k.less(keys, count), [&] { AttentionTiles(k).zeroOut(row, count, width); });
}

View HeadOfSequence::pairs(KernelBuilder &k, BufferIndex buffer, int64_t heads) {
  Value before = k.loadI64(k.field(k.keys(), offsetof(xfc_keys, pair_offsets), k.ptr), sequence);
  Value first = k.add(k.mul(before, heads), k.mul(head, k.mul(queries, keys)));
  return k.buffer(buffer) + first;
}

//===--------------------------------------------------------------------------------------------------------===//
// Distances
//===--------------------------------------------------------------------------------------------------------===//

Distances::Distances(KernelBuilder &k, HeadOfSequence &at, Value line, int64_t distances)
    : k(k), at(at), middle(k.offset(line, distances - 1)), distances(distances) {}

// A sequence has as many distances as rows. A query of a cached sequence sees only itself and the keys before it.
void Distances::copyIn(BufferIndex table, int64_t heads) {
  Value from = k.offset(k.buffer(table), k.mul(at.head, 2)), zero = k.index(0), one = k.index(1);
  Value before = k.add(at.queryPosition(k, k.sub(at.queries, one)), one), after = at.cached ? at.keys : at.queries;
  auto entry = [&](Value t, int64_t direction) {
    return k.load(k.offset(from, k.add(k.mul(t, 2 * heads), direction)));
  };
  k.loop(zero, before, 1, [&](Value t) { k.store(entry(t, 0), k.offset(middle, k.sub(zero, t))); });
  k.loop(one, k.min(after, k.index(distances)), 1, [&](Value t) { k.store(entry(t, 1), k.offset(middle, t)); });
}

void Distances::clear() {
  k.loop(k.sub(k.index(1), at.queries), at.queries, 1, [&](Value t) { k.store(k.scalar(0), k.offset(middle, t)); });
}

void Distances::copyOut(BufferIndex rows) {
  RowAt row = at.rows(k, rows, 2, at.firstQuery);
  k.loop(k.index(0), at.queries, 1, [&](Value t) {
    Value isAfter = k.less(k.index(0), t), after = k.load(k.offset(middle, t)), to = row(t);
    k.store(k.load(k.offset(middle, k.sub(k.index(0), t))), to);
    k.store(k.select(isAfter, after, k.scalar(0)), k.offset(to, 1)); // no key is 0 positions after the query
  });
}

// Runs body(index from `start` on, address in the line, lanes): by vectors for keys at consecutive positions, which is
// the usual case (no pad tokens among them), and otherwise key by key.
void Distances::each(Value query, Value start, Value count, const std::function<void(Value, Value, int64_t)> &body) {
  Value zero = k.index(0), last = k.sub(count, k.index(1)), first = at.keyPosition(k, start);
  Value line = k.offset(middle, k.sub(zero, at.queryPosition(k, query)));
  auto vectors = [&] {
    Value from = k.offset(line, first);
    k.loop(zero, count, k.lanes(), [&](Value j) { body(j, k.offset(from, j), k.lanes()); });
  };
  if (at.cached)
    return vectors();
  k.when(k.equal(k.sub(at.keyPosition(k, k.add(start, last)), first), last), vectors, [&] {
    k.loop(zero, count, 1, [&](Value j) { body(j, k.offset(line, at.keyPosition(k, k.add(start, j))), 1); });
  });
}

void Distances::addTo(Value row, Value query, Value start, Value count) {
  each(query, start, count, [&](Value j, Value address, int64_t lanes) {
    Value to = k.offset(row, j);
    auto load = [&](Value p) { return lanes == 1 ? k.load(p) : k.load(p, lanes); };
    k.store(k.addf(load(to), load(address)), to);
  });
}

void Distances::addFrom(Value row, Value query, Value start, Value count) {
  each(query, start, count, [&](Value j, Value address, int64_t lanes) {
    auto load = [&](Value p) { return lanes == 1 ? k.load(p) : k.load(p, lanes); };
    k.store(k.addf(load(address), load(k.offset(row, j))), address);
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Copies
//===--------------------------------------------------------------------------------------------------------===//

void AttentionTiles::copyIn(Value scratch, int64_t stride, const RowAt &row, Value count, int64_t features,
                            Value factor) {
  KernelBuilder::SumLanes wide(k);
  const int64_t lanes = k.lanes();
  Value factors = factor ? k.broadcast(factor) : Value();
  k.loop(k.index(0), count, 1, [&](Value j) {
    Value from = row(j), to = k.offset(scratch, k.mul(j, k.index(stride)));
    for (int64_t f = 0; f < features; f += lanes) {
      Value x = k.loadPart(k.offset(from, f), std::min(lanes, features - f));
      k.store(factor ? k.mulf(x, factors) : x, k.offset(to, f));
    }
  });
}

void AttentionTiles::transposeIn(Value scratch, int64_t stride, const RowAt &row, Value count, int64_t features) {
  const int64_t lanes = k.lanes();
  Value last = k.sub(count, k.index(1));
  k.loop(k.index(0), count, lanes, [&](Value j) {
    SmallVector<Value> from;
    for (int64_t i = 0; i < lanes; ++i)
      from.push_back(row(k.min(k.add(j, k.index(i)), last)));
    Value to = k.offset(scratch, j);
    auto block = [&](Value f, int64_t used) {
      SmallVector<Value> tile;
      for (Value address : from)
        tile.push_back(k.load(k.offset(address, f), lanes));
      k.transpose(tile);
      Value out = k.offset(to, k.mul(f, k.index(stride)));
      for (int64_t i = 0; i < used; ++i)
        k.store(tile[i], k.offset(out, i * stride));
    };
    int64_t whole = features / lanes * lanes;
    k.loop(k.index(0), k.index(whole), lanes, [&](Value f) { block(f, lanes); });
    if (whole < features)
      block(k.index(whole), features - whole);
  });
}

void AttentionTiles::copyOut(const RowAt &row, Value scratch, int64_t stride, Value count, int64_t features,
                             const RowFactor &factor, bool accumulate) {
  const int64_t lanes = k.lanes();
  k.loop(k.index(0), count, 1, [&](Value j) {
    Value to = row(j), from = k.offset(scratch, k.mul(j, k.index(stride)));
    Value factors = factor ? k.broadcast(factor(j)) : Value();
    for (int64_t f = 0; f < features; f += lanes) {
      Value x = k.load(k.offset(from, f), lanes), address = k.offset(to, f);
      if (factor)
        x = k.mulf(x, factors);
      if (accumulate)
        x = k.addf(k.load(address, lanes), x);
      k.storePart(x, address, std::min(lanes, features - f));
    }
  });
}

void AttentionTiles::zeroOut(const RowAt &row, Value count, int64_t features) {
  const int64_t lanes = k.lanes();
  k.loop(k.index(0), count, 1, [&](Value j) {
    Value to = row(j);
    for (int64_t f = 0; f < features; f += lanes)
      k.storePart(k.splat(0), k.offset(to, f), std::min(lanes, features - f));
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
    Value a = args[0], aStride = args[1], b = args[2], bStride = args[3], c = args[4], cStride = args[5];
    Value depth = args[6], accumulate = args[7];
    SmallVector<Value> aRows{a}, cRows{c};
    for (int64_t r = 1; r < rows; ++r) {
      aRows.push_back(transposed ? k.offset(a, r) : k.offset(aRows.back(), aStride));
      cRows.push_back(k.offset(cRows.back(), cStride));
    }
    // The loop state: the accumulators, the address of b's row and, if transposed, that of a's row.
    Values state(rows * columns, k.splat(0));
    state.push_back(b);
    if (transposed)
      state.push_back(a);
    auto steps = [&](Value i, Values s, int64_t count) {
      const int64_t n = rows * columns;
      for (int64_t u = 0; u < count; ++u) {
        SmallVector<Value> bs;
        for (int64_t j = 0; j < columns; ++j)
          bs.push_back(k.load(k.offset(s[n], j * lanes), lanes));
        for (int64_t r = 0; r < rows; ++r) {
          Value address = transposed ? k.offset(s[n + 1], r) : k.offset(k.offset(aRows[r], i), u);
          Value x = k.broadcast(k.load(address));
          for (int64_t j = 0; j < columns; ++j)
            s[r * columns + j] = k.fma(x, bs[j], s[r * columns + j]);
        }
        s[n] = k.offset(s[n], bStride);
        if (transposed)
          s[n + 1] = k.offset(s[n + 1], aStride);
      }
      return s;
    };
    Value whole = k.mul(k.div(depth, unroll), k.index(unroll));
    state = k.loop(k.index(0), whole, unroll, state, [&](Value i, Values s) { return steps(i, std::move(s), unroll); });
    state = k.loop(whole, depth, 1, state, [&](Value i, Values s) { return steps(i, std::move(s), 1); });
    state.resize(rows * columns);
    state = k.choose(
        accumulate,
        [&] {
          Values sums;
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < columns; ++j)
              sums.push_back(k.addf(k.load(k.offset(cRows[r], j * lanes), lanes), state[r * columns + j]));
          return sums;
        },
        [&] { return state; });
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < columns; ++j)
        k.store(state[r * columns + j], k.offset(cRows[r], j * lanes));
  });
  return name;
}

// Arguments: a, its stride, b, its stride, c, its stride, rows, vectors, depth, accumulate.
std::string AttentionTiles::driver(bool transposed) {
  std::string name = std::string("product_") + (transposed ? "t" : "n");
  Type ptr = k.ptr, i64 = k.i64;
  k.helper(name, {ptr, i64, ptr, i64, ptr, i64, i64, i64, i64, k.i1}, [&](ValueRange args) {
    const int64_t lanes = k.lanes(), most = tileRows(k);
    Value a = args[0], aStride = args[1], b = args[2], bStride = args[3], c = args[4], cStride = args[5];
    Value rows = args[6], vectors = args[7], depth = args[8], accumulate = args[9];
    Value whole = k.mul(k.div(rows, most), k.index(most)), rest = k.sub(rows, whole);
    auto columnsAt = [&](Value vector, int64_t columns) {
      Value f = k.mul(vector, k.index(lanes));
      auto call = [&](Value row, int64_t count) {
        Value aRow = k.offset(a, transposed ? row : k.mul(row, aStride));
        k.invoke(tile(transposed, count, columns),
                 {aRow, aStride, k.offset(b, f), bStride, k.offset(k.offset(c, k.mul(row, cStride)), f), cStride, depth,
                  accumulate});
      };
      k.loop(k.index(0), whole, most, [&](Value row) { call(row, most); });
      for (int64_t count = 1; count < most; ++count)
        k.when(k.equal(rest, k.index(count)), [&] { call(whole, count); });
    };
    Value pairs = k.mul(k.div(vectors, 2), k.index(2));
    k.loop(k.index(0), pairs, 2, [&](Value vector) { columnsAt(vector, 2); });
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
    Value a = args[0], aStride = args[1], b = args[2], bStride = args[3], c = args[4], cStride = args[5];
    Value rows = args[6], vectors = args[7], depth = args[8], accumulate = args[9], as = args[10];
    Value zero = k.index(0), units = t.units(k, depth);
    if (transposed)
      transposeLeft(k, t, a, aStride, depth, rows, as, {});
    else
      k.loop(zero, rows, 1, [&](Value row) {
        Value from = k.offset(a, k.mul(row, aStride)), to = k.offset(as, k.mul(row, t.stride));
        auto convert = [&](Value u, llvm::function_ref<Value(Value f)> load) {
          Value f = k.mul(u, t.pair), first = load(f), second = load(k.add(f, lanes));
          k.store(adjacentPairsOfBF16(k, first, second), k.offset(to, u));
        };
        Value whole = k.mul(k.div(depth, 2 * lanes), lanes); // units of vectors without padding
        k.loop(zero, whole, lanes,
               [&](Value u) { convert(u, [&](Value f) { return k.load(k.offset(from, f), lanes); }); });
        k.loop(whole, units, lanes, [&](Value u) {
          convert(u, [&](Value f) { return k.loadMasked(k.offset(from, f), k.lanesBelow(f, depth)); });
        });
      });
    k.loop(zero, k.mul(vectors, lanes), t.panel, [&](Value column) {
      const xfc::Right panel{k.offset(b, k.mul(k.div(column, t.panel), bStride)), zero, {}, {}};
      multiplyPanels(k, t, {as, k.index(t.stride), 1, {}}, panel, 1, units, k.offset(c, column), cStride, rows,
                     accumulate, [](Value, int64_t) {});
    });
  });
  return name;
}

void AttentionTiles::product(Matrix a, bool transposed, const Right &b, Matrix c, Value rows, Value vectors,
                             Value depth, Value accumulate) {
  const Matrix of = tiling ? Matrix{b.panels, k.index(b.panelStride)} : b.rows;
  SmallVector<Value> arguments = {a.data,   a.stride, of.data, of.stride, c.data,
                                  c.stride, rows,     vectors, depth,     accumulate};
  if (tiling)
    arguments.push_back(left);
  k.invoke(tiling ? roundingDriver(transposed) : driver(transposed), arguments);
}

//===--------------------------------------------------------------------------------------------------------===//
// Dropout
//===--------------------------------------------------------------------------------------------------------===//

// Sixteen Philox counters give the numbers of 64 positions. Keys at consecutive positions that start at a multiple of
// 64, which is the usual case (no pad tokens among them), therefore need only a quarter of the counters that keys at
// arbitrary positions need.
void AttentionTiles::keepFactors(Value factors, HeadOfSequence &at, Value query, Value start, Value count,
                                 double rate) {
  const int64_t lanes = k.lanes();
  Value queryRow = k.add(at.firstQuery, query);
  Value position = k.loadI32(k.field(k.rows(), offsetof(xfc_rows, positions), k.ptr), queryRow);
  Value sentence = k.loadI32(k.field(k.rows(), offsetof(xfc_rows, sentences), k.ptr), at.sequence);
  Value keyPositions = k.field(k.keyRows(), offsetof(xfc_rows, positions), k.ptr);
  KernelBuilder::DropoutKey key = k.dropoutKey(k.immediate(0), position, sentence, k.add(at.head, 1));
  auto positionOf = [&](Value j) { return k.loadI32(keyPositions, k.loadI32(at.keyList, k.add(start, j))); };
  Value last = k.sub(count, k.index(1)), first = positionOf(k.index(0));
  Value consecutive = k.both(k.equal(k.sub(positionOf(last), first), last), k.equal(k.rem(first, 64), k.index(0)));
  k.when(
      consecutive,
      [&] {
        k.loop(k.index(0), count, 64, [&](Value j) {
          Value counter = k.broadcast(k.truncated(k.div(k.add(first, j), 4)));
          for (int64_t i = 0; i < 16; i += lanes) {
            Value counters = k.add(counter, k.add(k.iota(lanes), k.broadcast(k.i32Of(i))));
            for (auto [word, numbers] : llvm::enumerate(k.philox(key, counters)))
              k.store(k.keepFactor(numbers, rate), k.offset(k.offset(factors, j), word * 16 + i));
          }
        });
      },
      [&] {
        k.loop(k.index(0), count, 1, [&](Value j) {
          Value f = positionOf(j);
          Value counter = k.add(k.mul(k.div(f, 64), 16), k.rem(f, 16)), word = k.div(k.rem(f, 64), 16);
          auto numbers = k.philox(key, k.broadcast(k.truncated(counter)));
          Value number = numbers[3];
          for (int64_t w = 2; w >= 0; --w)
            number = k.select(k.equal(word, k.index(w)), numbers[w], number);
          k.store(k.lane(k.keepFactor(number, rate), 0), k.offset(factors, j));
        });
      });
}

} // namespace xfc
