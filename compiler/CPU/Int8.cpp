// Rows and weights as int8: how they are rounded, packed and multiplied.
#include "Int8.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace xfc {

// The bits of a vector as elements of another type.
static Value as(KernelBuilder &k, Value vector, Type element) {
  auto type = cast<VectorType>(vector.getType());
  const int64_t bits = type.getDimSize(0) * type.getElementTypeBitWidth();
  return vector::BitCastOp::create(k.b, k.vectorType(bits / element.getIntOrFloatBitWidth(), element), vector);
}

static Value bytes(KernelBuilder &k, Value integers) {
  return arith::TruncIOp::create(k.b, k.vectorType(k.lanes(), k.b.getI8Type()), integers);
}
static Value word(KernelBuilder &k, int32_t bits) { return k.broadcast(k.i32Of(bits)); }

//===--------------------------------------------------------------------------------------------------------===//
// Rounding
//===--------------------------------------------------------------------------------------------------------===//

struct Scale {
  Value factor, scale; // r and s
};

// Magnitudes are compared by their bits, in which NaN is larger than infinity, and infinity larger than every number.
static Scale scaleOf(KernelBuilder &k, const View &from, int64_t elements) {
  Value signless = word(k, 0x7fffffff);
  auto larger = [&](Value largest, Value at, int64_t used) {
    Value bits = as(k, k.loadPart(from + at, used), k.i32);
    return k.max(largest, arith::AndIOp::create(k.b, bits, signless));
  };
  // Four independent maxima hide the latency of the maximum.
  const int64_t step = 4 * k.lanes(), whole = elements / step * step;
  Values state(4, word(k, 0x0d800000)); // 2^-100
  state = k.loop(0, whole, step, state, [&](Value at, Values largest) {
    for (int64_t i = 0; i < 4; ++i)
      largest[i] = larger(largest[i], k.add(at, i * k.lanes()), k.lanes());
    return largest;
  });
  for (int64_t at = whole, i = 0; at < elements; at += k.lanes(), ++i)
    state[i] = larger(state[i], k.index(at), std::min(k.lanes(), elements - at));
  Value second = k.max(state[2], state[3]), largest = k.max(k.max(state[0], state[1]), second);
  Value bits = vector::ReductionOp::create(k.b, vector::CombiningKind::MAXSI, largest);
  Value magnitude = arith::BitcastOp::create(k.b, k.element, bits);
  return {k.divf(127, magnitude), k.divf(magnitude, 127)};
}

// q as 32-bit integers: adding 1.5 * 2^23 leaves the nearest integer in the low bits.
static Value rounded(KernelBuilder &k, Value x, Value factors) {
  return k.sub(as(k, k.fma(x, factors, 12582912.0), k.i32), 0x4b400000);
}

void copyInt8Row(KernelBuilder &k, const Tiling &t, const View &from, const View &to, int64_t elements) {
  auto [factor, scale] = scaleOf(k, from, elements);
  Value factors = k.broadcast(factor), zero = word(k, 0);
  Values sums = k.features(elements, zero, [&](Value i, int64_t used, Values state) -> Values {
    Value q = rounded(k, k.loadPart(from + i, used), factors);
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
    Value q = rounded(k, k.loadPart(from + i, used), factors), words = as(k, bytes(k, q), k.i32);
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

void packInt8Zeros(KernelBuilder &k, const Tiling &t, int64_t inner, const View &to, Value column) {
  k.loop(0, t.panelWords(inner), t.panel, [&](Value row) { k.store(0, (to + k.add(row, column)).as(k.i32)); });
}

//===--------------------------------------------------------------------------------------------------------===//
// Multiplying
//===--------------------------------------------------------------------------------------------------------===//

// Quads: multiplies the row's magnitudes by w, with the bits of w flipped where the row is negative. A flipped w is
// -w - 1, so the sum lacks the magnitudes of the negative integers, which scaleInt8 adds. Two products fit 16 bits:
// 2 * 127 * 128 < 2^15. The flip runs in parallel with the two multiplications, whereas vpsignb would wait for them;
// widening w to 16 bits instead takes as many multiplications, and reached two thirds of the speed.
Value addInt8(KernelBuilder &k, const Tiling &t, Value sum, Value row, Value magnitude, Value columns) {
  Type i8 = k.b.getI8Type(), i16 = k.b.getI16Type();
  const bool wide = k.set.vectorBytes == 64;
  const int64_t count = 4 * k.lanes();
  auto intrinsic = [&](const char *narrow, const char *full, int64_t n, Type element, ValueRange arguments) -> Value {
    return LLVM::CallIntrinsicOp::create(k.b, k.vectorType(n, element), k.b.getStringAttr(wide ? full : narrow),
                                         arguments)
        .getResult(0);
  };
  if (t.products == Products::Dots)
    return intrinsic("llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx512.vpdpbusd.512", k.lanes(), k.i32,
                     {sum, as(k, row, i8), as(k, columns, i8)});
  Value signs = as(k, row, i8), w = arith::XOrIOp::create(k.b, as(k, columns, i8), signs);
  Value twos = intrinsic("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx512.pmaddubs.w.512", count / 2, i16,
                         {as(k, magnitude, i8), w});
  Value ones =
      arith::ConstantOp::create(k.b, DenseElementsAttr::get(k.vectorType(count / 2, i16), ArrayRef<int16_t>{1}));
  return k.add(sum,
               intrinsic("llvm.x86.avx2.pmadd.wd", "llvm.x86.avx512.pmaddw.d.512", k.lanes(), k.i32, {twos, ones}));
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
