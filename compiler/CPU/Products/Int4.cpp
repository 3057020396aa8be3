// Weights as int4: how they are packed, and multiplied by rows of int8.
#include "Int4.h"
#include "Integers.h"
#include "Tiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace xfc {

static constexpr int64_t groups = int4Unit / int4Group, wordsOfGroup = int4Group / 8;

// Calls `body` for each unit of a row, with the number of its elements that exist.
static void forEachUnit(KernelBuilder &k, int64_t elements, const std::function<void(Value unit, int64_t used)> &body) {
  const int64_t whole = elements / int4Unit;
  k.loop(0, whole, 1, [&](Value unit) { body(unit, int4Unit); });
  if (elements % int4Unit)
    body(k.index(whole), elements % int4Unit);
}

// The vectors of a group of which `used` elements exist; the others are zeros.
static Values loadGroup(KernelBuilder &k, const View &from, int64_t used) {
  Values x;
  for (int64_t i = 0; i < int4Group; i += k.lanes())
    x.push_back(i < used ? k.loadPart(from + i, std::min(k.lanes(), used - i)) : k.splat(0));
  return x;
}

//===--------------------------------------------------------------------------------------------------------===//
// Rounding and packing
//===--------------------------------------------------------------------------------------------------------===//

void copyInt4Row(KernelBuilder &k, const Tiling &t, const View &from, const View &to, int64_t elements) {
  auto [factor, scale] = scaleOf(k, from, elements);
  Value factors = k.broadcast(factor);
  forEachUnit(k, elements, [&](Value unit, int64_t used) {
    View source = from + k.mul(unit, int4Unit), at = to + k.mul(unit, t.left);
    for (int64_t g = 0; g < groups; ++g) {
      Value sum = word(k, 0);
      const int64_t first = g * int4Group;
      for (auto [i, x] : llvm::enumerate(loadGroup(k, source + first, used - first))) {
        Value q = nearestIntegers(k, x, factors);
        View place = at + (first + static_cast<int64_t>(i) * k.lanes()) / 4;
        k.store(bytes(k, q), place);
        sum = k.add(sum, q);
      }
      Value ofGroup = vector::ReductionOp::create(k.b, vector::CombiningKind::ADD, sum);
      View place = at + (int4Unit / 4 + g);
      k.store(k.mul(ofGroup, -8), place);
    }
  });
  k.store(scale, to + t.scaleAt());
}

// The scale of a group: a float that bf16 holds.
static Value scaleOfGroup(KernelBuilder &k, const Values &group) {
  Value magnitudes = word(k, 0x0d800000), highest = k.splat(0x1p-100);
  for (Value x : group) {
    magnitudes = largerMagnitudes(k, magnitudes, x);
    highest = k.maxf(highest, x);
  }
  Value magnitude = vector::ReductionOp::create(k.b, vector::CombiningKind::MAXSI, magnitudes);
  Value isPositive = k.equal(arith::BitcastOp::create(k.b, k.i32, k.largest(highest)), magnitude);
  Value largest = arith::BitcastOp::create(k.b, k.element, magnitude), eighth = k.mulf(largest, 0.125);
  Value scale = k.select(isPositive, arith::NegFOp::create(k.b, eighth), eighth);
  return k.lane(roundToBF16(k, k.broadcast(scale)), 0);
}

void packInt4Column(KernelBuilder &k, const Tiling &t, const View &from, int64_t inner, const View &to, Value column) {
  forEachUnit(k, inner, [&](Value unit, int64_t used) {
    View source = from + k.mul(unit, int4Unit), at = to + k.add(k.mul(unit, int4RightWords * t.panel), column);
    Value scales = k.i32Of(0);
    for (int64_t g = 0; g < groups; ++g) {
      const Values group = loadGroup(k, source + g * int4Group, used - g * int4Group);
      Value scale = scaleOfGroup(k, group), factors = k.broadcast(k.divf(1, scale));
      SmallVector<Value> fours; // words of four integers
      for (Value x : group) {
        Value most = word(k, 7), least = word(k, -8);
        Value q = k.add(k.max(k.min(nearestIntegers(k, x, factors), most), least), 8);
        Value words = as(k, bytes(k, q), k.i32);
        for (int64_t i = 0; i < k.lanes() / 4; ++i)
          fours.push_back(k.lane(words, i));
      }
      for (int64_t w = 0; w < wordsOfGroup; ++w) {
        Value high = arith::ShLIOp::create(k.b, fours[2 * w + 1], k.i32Of(4));
        View place = at + (g * wordsOfGroup + w) * t.panel;
        k.store(arith::OrIOp::create(k.b, fours[2 * w], high), place);
      }
      Value bits = arith::BitcastOp::create(k.b, k.i32, scale);
      scales = g == 0 ? arith::ShRUIOp::create(k.b, bits, k.i32Of(16)).getResult()
                      : arith::OrIOp::create(k.b, scales, bits).getResult();
    }
    k.store(scales, at + groups * wordsOfGroup * t.panel);
  });
}

Value scaleInt4(KernelBuilder &k, const Tiling &t, Value sum, const View &row) {
  return k.mulf(sum, k.broadcast(k.load(row + t.scaleAt())));
}

//===--------------------------------------------------------------------------------------------------------===//
// Multiplying
//===--------------------------------------------------------------------------------------------------------===//

namespace {

// c[rows][panel] = a[rows][0..depth) b[0..depth)[panel], as a function.
struct NibbleKernel {
  KernelBuilder &k;
  const Tiling &t;
  const int64_t rows, vectors = t.vectors;
  SmallVector<View> left;
  View panel;

  NibbleKernel(KernelBuilder &k, const Tiling &t, int64_t rows) : k(k), t(t), rows(rows) {}

  Value bits(Value word, int32_t mask) const { return arith::AndIOp::create(k.b, word, xfc::word(k, mask)); }
  Value shifted(Value word, int32_t count) const { return arith::ShRUIOp::create(k.b, word, xfc::word(k, count)); }
  View rightAt(Value at, int64_t word, int64_t v) const { return panel + at + (word * t.panel + v * k.lanes()); }

  // The sums of a group's products, for each row and vector.
  Values group(int64_t g, Value leftAt, Value rightBegin) const {
    const bool dots = k.set.vnni;
    Values corrections, sums;
    for (int64_t r = 0; r < rows; ++r) {
      View place = left[r] + leftAt + (int4Unit / 4 + g);
      corrections.push_back(k.broadcast(k.load(place.as(k.i32))));
      sums.append(vectors, dots ? corrections[r] : Value());
    }
    for (int64_t w = 0; w < wordsOfGroup; ++w) {
      auto leftWord = [&](int64_t r, int64_t half) {
        return k.broadcast(k.load(left[r] + leftAt + (2 * (g * wordsOfGroup + w) + half)));
      };
      auto halvesOf = [&](int64_t v) -> std::array<Value, 2> {
        Value packed = as(k, k.load(rightAt(rightBegin, g * wordsOfGroup + w, v), k.lanes()), k.i32);
        return {bits(packed, 0x0f0f0f0f), bits(shifted(packed, 4), 0x0f0f0f0f)};
      };
      auto add = [&](int64_t r, int64_t v, Value nibbles, Value row) {
        Value &sum = sums[r * vectors + v];
        if (dots)
          sum = addFours(k, sum, nibbles, row);
        else if (Value products = productsOfPairs(k, nibbles, row); sum)
          sum = arith::AddIOp::create(k.b, sum, products);
        else
          sum = products;
      };
      SmallVector<std::array<Value, 2>> weights;
      for (int64_t v = 0; v < vectors; ++v)
        weights.push_back(halvesOf(v));
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t half = 0; half < 2; ++half) {
          Value row = leftWord(r, half);
          for (int64_t v = 0; v < vectors; ++v)
            add(r, v, weights[v][half], row);
        }
    }
    if (!dots)
      for (auto [i, sum] : llvm::enumerate(sums))
        sum = k.add(sumsOfPairs(k, sum), corrections[i / vectors]);
    return sums;
  }

  // Adds the products of a unit to sums of floats.
  Values unit(Value index, Values sums) const {
    Value leftAt = k.mul(index, t.left), rightBegin = k.mul(index, int4RightWords * t.panel);
    for (int64_t g = 0; g < groups; ++g) {
      const Values integers = group(g, leftAt, rightBegin);
      for (int64_t v = 0; v < vectors; ++v) {
        Value both = as(k, k.load(rightAt(rightBegin, groups * wordsOfGroup, v), k.lanes()), k.i32);
        Value upper = g == 0 ? arith::ShLIOp::create(k.b, both, xfc::word(k, 16)).getResult()
                             : bits(both, static_cast<int32_t>(0xffff0000));
        Value scales = as(k, upper, k.element);
        for (int64_t r = 0; r < rows; ++r) {
          Value &sum = sums[r * vectors + v];
          sum = k.fma(arith::SIToFPOp::create(k.b, sum.getType(), integers[r * vectors + v]), scales, sum);
        }
      }
    }
    return sums;
  }
};

} // namespace

// How many units ahead weights are prefetched. A single row is multiplied as fast as weights can be read, and then the
// hardware prefetches better alone; with more rows, it does not keep up.
static constexpr int64_t unitsAhead = 4;

static std::string nibbleKernel(KernelBuilder &k, const Tiling &t, int64_t rows, bool fetches) {
  const std::string name = llvm::formatv("product_nibbles_{0}x{1}{2}", rows, t.panel, fetches ? "_fetching" : "");
  k.helper(name, {k.ptr, k.i64, k.ptr, k.i64, k.i64, k.ptr, k.i64, k.i1}, [&](ValueRange arguments) {
    View a = k.at(arguments[0]).inRows(arguments[1]), c = k.at(arguments[5]).inRows(arguments[6]);
    NibbleKernel kernel(k, t, rows);
    kernel.panel = k.at(arguments[2]);
    for (int64_t r = 0; r < rows; ++r)
      kernel.left.push_back(a.row(r));
    const Values zeros(rows * kernel.vectors, k.splat(0));
    Values sums = k.loop(0, arguments[4], 1, zeros, [&](Value unit, const Values &state) {
      if (fetches) {
        View ahead = kernel.panel + k.mul(k.add(unit, unitsAhead), int4RightWords * t.panel);
        for (int64_t word = 0; word < int4RightWords * t.panel; word += 64 / k.bytes())
          k.prefetch(ahead + word);
      }
      return kernel.unit(unit, state);
    });
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t v = 0; v < kernel.vectors; ++v)
        k.store(sums[r * kernel.vectors + v], c(r, v * k.lanes()));
  });
  return name;
}

void multiplyInt4(KernelBuilder &k, const Tiling &t, const Left &a, const Right &b, int64_t panels, const Term &depth,
                  const View &c, Value count, const Ahead &ahead) {
  Value tiles = k.div(count, t.rows), rest = k.sub(count, k.mul(tiles, t.rows)), first = k.min(tiles, 1);
  for (int64_t panel = 0; panel < panels; ++panel) {
    auto call = [&](Value tile, int64_t rows, bool fetches) {
      View sums = c + k.add(k.mul(k.mul(tile, t.rows), c.stride), panel * t.panel);
      View left = a.rows + k.mul(tile, a.tile), right = b.panels.row(panel);
      const SmallVector<Value> arguments = argumentsOf(k, left, right, depth, sums, k.boolean(false));
      k.invoke(nibbleKernel(k, t, rows, fetches), arguments);
    };
    auto multiply = [&](const Term &begin, Value end, bool fetches) {
      k.loop(begin, end, 1, [&](Value tile) {
        ahead(tile, panel);
        call(tile, t.rows, fetches);
      });
    };
    multiply(0, first, true);
    multiply(first, tiles, false); // the panel is in the cache now
    for (int64_t rows = 1; rows < t.rows; ++rows)
      k.when(k.equal(rest, rows), [&] { call(tiles, rows, rows > 1); });
  }
}

} // namespace xfc
