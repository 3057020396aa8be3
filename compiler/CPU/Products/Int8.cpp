// Rows and weights as int8: how they are rounded, packed and multiplied.
#include "Int8.h"
#include "Integers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// Rounding
//===--------------------------------------------------------------------------------------------------------===//

void copyInt8Row(KernelBuilder &k, const Tiling &t, const View &from, const View &to, int64_t elements) {
  auto [factor, scale] = scaleOf(k, from, elements);
  Value factors = k.broadcast(factor), zero = word(k, 0);
  Values sums = k.features(elements, zero, [&](Value i, int64_t used, Values state) -> Values {
    Value q = nearestIntegers(k, k.loadPart(from + i, used), factors);
    View at = to + k.mul(k.div(i, 4), t.left);
    if (t.products != Products::Quads) {
      k.store(bytes(k, k.add(q, 128)), at);
      return state;
    }
    // A word of sign bytes, which flip the bits of the weights that negative integers are multiplied with, then a word
    // of magnitudes.
    Value flips = arith::ShRSIOp::create(k.b, q, word(k, 31)), negated = k.sub(zero, q);
    SmallVector<int64_t> order;
    for (int64_t unit = 0; unit < k.lanes() / 4; ++unit)
      order.append({unit, k.lanes() / 4 + unit});
    Value magnitudes = as(k, bytes(k, k.max(q, negated)), k.i32);
    k.store(vector::ShuffleOp::create(k.b, as(k, bytes(k, flips), k.i32), magnitudes, order), at);
    return {k.add(state[0], k.max(negated, zero))};
  });
  View scaleAt = to + t.scaleAt();
  k.store(scale, scaleAt);
  if (t.products == Products::Quads) {
    View correction = to + (t.scaleAt() + 1);
    k.store(vector::ReductionOp::create(k.b, vector::CombiningKind::ADD, sums[0]), correction);
  }
}

//===--------------------------------------------------------------------------------------------------------===//
// Packing
//===--------------------------------------------------------------------------------------------------------===//

void packInt8Column(KernelBuilder &k, const Tiling &t, const View &from, int64_t inner, const View &to, Value column) {
  auto [factor, scale] = scaleOf(k, from, inner);
  Value factors = k.broadcast(factor);
  View at = to + column;
  Values sums = k.features(inner, word(k, 0), [&](Value i, int64_t used, Values state) -> Values {
    Value q = nearestIntegers(k, k.loadPart(from + i, used), factors), words = as(k, bytes(k, q), k.i32);
    for (int64_t unit = 0; unit < (used + 3) / 4; ++unit) {
      View place = at + k.mul(k.add(k.div(i, 4), unit), t.panel);
      k.store(k.lane(words, unit), place);
    }
    return {k.add(state[0], q)};
  });
  const int64_t units = t.units(inner);
  for (int64_t unit = (inner + 3) / 4; unit < units; ++unit)
    k.store(0, (at + unit * t.panel).as(k.i32));
  k.store(scale, at + units * t.panel);
  if (t.products != Products::Quads) {
    Value sum = vector::ReductionOp::create(k.b, vector::CombiningKind::ADD, sums[0]);
    View contribution = at + (units + 1) * t.panel;
    k.store(k.mul(sum, 128), contribution);
  }
}

//===--------------------------------------------------------------------------------------------------------===//
// Multiplying
//===--------------------------------------------------------------------------------------------------------===//

// Quads: multiplies the row's magnitudes by w, with the bits of w flipped where the row is negative. A flipped w is
// -w - 1, so the sum lacks the magnitudes of the negative integers, which scaleInt8 adds. Two products fit 16 bits:
// 2 * 127 * 128 < 2^15. The flip runs in parallel with the two multiplications, whereas vpsignb would wait for them;
// widening w to 16 bits instead takes as many multiplications, and reached two thirds of the speed.
Value addInt8(KernelBuilder &k, const Tiling &t, Value sum, Value row, Value magnitude, Value columns) {
  if (t.products == Products::Dots)
    return addFours(k, sum, row, columns);
  Value signs = as(k, row, k.b.getI8Type()), w = arith::XOrIOp::create(k.b, as(k, columns, k.b.getI8Type()), signs);
  return k.add(sum, sumsOfPairs(k, productsOfPairs(k, magnitude, w)));
}

Value scaleInt8(KernelBuilder &k, const Tiling &t, Value sum, const View &row, int64_t inner, const View &panel,
                int64_t column) {
  auto afterPanel = [&](int64_t i) { return k.load(panel + ((t.units(inner) + i) * t.panel + column), k.lanes()); };
  Value integers = as(k, sum, k.i32);
  if (t.products == Products::Quads)
    integers = k.add(integers, as(k, k.broadcast(k.load(row + (t.scaleAt() + 1))), k.i32));
  else
    integers = k.sub(integers, as(k, afterPanel(1), k.i32));
  Value y = arith::SIToFPOp::create(k.b, k.vectorType(k.lanes()), integers);
  Value scale = k.broadcast(k.load(row + t.scaleAt()));
  return k.mulf(k.mulf(y, afterPanel(0)), scale);
}

} // namespace xfc
