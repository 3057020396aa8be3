// The kernels that pack weights.
#include "Packing.h"
#include "Int4.h"
#include "Int8.h"
#include "support/Error.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace xfc {

static void packRows(KernelBuilder &k, const Tiling &t, bool transposed, const View &weight, Value rows, Value columns,
                     Value first, Value begin, Value end, const View &packed) {
  const int64_t lanes = k.lanes(), panel = t.panel, pair = t.pair;
  auto upTo = [&](Value n, int64_t unit) { return k.div(k.add(n, unit - 1), unit); };
  Value inner = transposed ? columns : rows, units = t.units(k, inner);
  auto at = [&](Value row, Value column) { return weight + k.add(k.mul(row, columns), column); };
  auto unitOf = [&](Value x, Value next) { return pair > 1 ? pairOfBF16(k, x, next) : x; };
  // Weights that are not rounded are packed for the launch that comes next in a training step, so they stay in cache.
  auto store = [&](Value x, const View &to, Value unit, int64_t v) {
    const View place = to + k.add(k.mul(unit, panel), v * lanes);
    t.products == Products::Elements ? k.store(x, place) : k.storePastCaches(x, place);
  };
  // Zeroes the units of a panel that hold no element.
  auto pad = [&](const View &to) {
    if (t.products == Products::Tiles)
      k.loop(upTo(inner, pair), units, 1, [&](Value unit) {
        for (int64_t v = 0; v < t.vectors; ++v)
          store(k.splat(0), to, unit, v);
      });
  };

  // Rows of the weight are rows of every panel.
  if (!transposed) {
    Value last = k.min(k.add(first, panel), rows);
    auto packColumns = [&](Value column, bool whole) {
      View to = packed + k.mul(column, units);
      Value lastUnit = upTo(last, pair);
      k.loop(k.div(first, pair), lastUnit, 1, [&](Value unit) {
        Value row = k.mul(unit, pair), next = k.add(row, 1);
        for (int64_t v = 0; v < t.vectors; ++v) {
          Value feature = k.add(column, v * lanes);
          auto rowAt = [&](Value r) {
            if (whole)
              return k.load(at(r, feature), lanes);
            Value given = k.lanesBelow(feature, columns);
            return k.loadMasked(at(r, feature), given);
          };
          Value x = rowAt(row), second;
          if (pair > 1) {
            second = rowAt(k.min(next, k.sub(rows, 1)));
            second = k.select(k.less(next, rows), second, 0);
          }
          store(unitOf(x, second), to, unit, v);
        }
      });
      k.when(k.equal(last, rows), [&] { pad(to); });
    };
    Value whole = k.mul(k.div(end, panel), panel);
    k.loop(begin, whole, panel, [&](Value column) { packColumns(column, true); });
    k.when(k.less(whole, end), [&] { packColumns(whole, false); });
    return;
  }

  // Rows of the weight are columns of one panel: squares of lanes x lanes elements are transposed in registers.
  View to = packed + k.mul(first, units);
  auto packSquares = [&](Value column, bool wholeRows, bool whole) {
    for (int64_t v = 0; v < t.vectors; ++v) {
      SmallVector<Value> square;
      for (int64_t j = 0; j < lanes; ++j) {
        Value row = k.add(first, v * lanes + j),
              x = k.load(at(wholeRows ? row : k.min(row, k.sub(rows, 1)), column), lanes);
        square.push_back(wholeRows ? x : k.select(k.less(row, rows), x, 0));
      }
      k.transpose(square);
      for (int64_t j = 0; j < lanes; j += pair) {
        auto storeUnit = [&] {
          Value second;
          if (pair > 1)
            second = whole ? square[j + 1] : k.select(k.less(k.add(column, j + 1), columns), square[j + 1], 0);
          Value unit = k.add(k.div(column, pair), j / pair);
          store(unitOf(square[j], second), to, unit, v);
        };
        whole ? storeUnit() : k.when(k.less(k.add(column, j), columns), storeUnit);
      }
    }
  };
  auto packColumns = [&](bool wholeRows) {
    Value whole = k.mul(k.div(end, lanes), lanes);
    k.loop(begin, whole, lanes, [&](Value column) { packSquares(column, wholeRows, true); });
    k.when(k.less(whole, end), [&] { packSquares(whole, wholeRows, false); });
  };
  k.when(k.less(k.add(first, panel - 1), rows), [&] { packColumns(true); }, [&] { packColumns(false); });
  k.when(k.equal(end, columns), [&] { pad(to); });
}

void emitPackRows(KernelBuilder &k, Packing packing, const View &weight, const Term &rows, const Term &columns,
                  Value first, const Term &begin, const Term &end, const View &packed) {
  const Tiling t(k, 1, productsFor(k, packing.compute));
  const char *const kind = t.products == Products::Elements ? "" : t.products == Products::Tiles ? "_tiles" : "_pairs";
  const std::string name = llvm::formatv("pack_rows{0}{1}", kind, packing.transposed ? "_transposed" : "");
  k.helper(name, {k.ptr, k.i64, k.i64, k.i64, k.i64, k.i64, k.ptr}, [&](ValueRange a) {
    packRows(k, t, packing.transposed, k.at(a[0]), a[1], a[2], a[3], a[4], a[5], k.at(a[6]));
  });
  k.invoke(name, {weight.data, k.index(rows), k.index(columns), first, k.index(begin), k.index(end), packed.data});
}

// Packs a weight as integers. Each chunk packs one panel.
static PackInfo emitPackIntegers(KernelBuilder &k, const Tiling &t, int64_t outer, int64_t inner) {
  if (isInt8(t.products) && inner > largestInt8Inner)
    throw Error("compile: a product over " + std::to_string(inner) +
                " features cannot be summed exactly in int8; the limit is " + std::to_string(largestInt8Inner) +
                " features");
  View from = k.buffer({PackBuffers::weight, k.element});
  Value begin = k.mul(k.chunk, t.panelWords(inner));
  View to = k.buffer({PackBuffers::packed, k.element}) + begin;
  Value first = k.mul(k.chunk, t.panel);
  Value real = k.min(t.panel, k.sub(outer, first));
  k.loop(0, real, 1, [&](Value j) {
    View row = from + k.mul(k.add(first, j), inner);
    isInt8(t.products) ? packInt8Column(k, t, row, inner, to, j) : packInt4Column(k, t, row, inner, to, j);
  });
  // Columns that do not exist are filled with zeros. Their scale is zero then, too, and so are their sums.
  k.loop(real, t.panel, 1, [&](Value j) {
    k.loop(0, t.panelWords(inner), t.panel, [&](Value word) { k.store(0, (to + k.add(word, j)).as(k.i32)); });
  });
  return {t.panels(outer) * t.panelWords(inner) * k.bytes(), t.panels(outer)};
}

PackInfo emitPackWeight(KernelBuilder &k, RankedTensorType weight, Packing packing) {
  const int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1);
  const int64_t outer = packing.transposed ? rows : columns, inner = packing.transposed ? columns : rows;
  const Tiling t(k, inner, productsFor(k, packing.compute));
  if (isInteger(t.products))
    return emitPackIntegers(k, t, outer, inner);
  View to = k.buffer({PackBuffers::packed, k.element});
  Value first = k.mul(k.chunk, t.panel);
  emitPackRows(k, packing, k.buffer({PackBuffers::weight, k.element}), rows, columns, first, 0, columns, to);
  k.completeStores();
  return {t.panels(outer) * t.units(inner) * t.panel * k.bytes(), t.panels(rows)};
}

} // namespace xfc
