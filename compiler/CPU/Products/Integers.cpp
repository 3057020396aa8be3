// Rounds floats to integers of a byte, and multiplies these.
#include "Integers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace xfc {

Value as(KernelBuilder &k, Value vector, Type element) {
  auto type = cast<VectorType>(vector.getType());
  const int64_t bits = type.getDimSize(0) * type.getElementTypeBitWidth();
  return vector::BitCastOp::create(k.b, k.vectorType(bits / element.getIntOrFloatBitWidth(), element), vector);
}

Value bytes(KernelBuilder &k, Value integers) {
  return arith::TruncIOp::create(k.b, k.vectorType(k.lanes(), k.b.getI8Type()), integers);
}

Value word(KernelBuilder &k, int32_t bits) { return k.broadcast(k.i32Of(bits)); }

Value largerMagnitudes(KernelBuilder &k, Value magnitudes, Value x) {
  Value bits = as(k, x, k.i32);
  return k.max(magnitudes, arith::AndIOp::create(k.b, bits, word(k, 0x7fffffff)));
}

Scale scaleOf(KernelBuilder &k, const View &from, int64_t elements) {
  auto larger = [&](Value largest, Value at, int64_t used) {
    return largerMagnitudes(k, largest, k.loadPart(from + at, used));
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

// Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
Value nearestIntegers(KernelBuilder &k, Value x, Value factors) {
  return k.sub(as(k, k.fma(x, factors, 12582912.0), k.i32), 0x4b400000);
}

// The intrinsic for vectors of the set's size.
static Value intrinsic(KernelBuilder &k, const char *narrow, const char *wide, int64_t lanes, Type element,
                       ValueRange arguments) {
  StringAttr name = k.b.getStringAttr(k.set.vectorBytes == 64 ? wide : narrow);
  return LLVM::CallIntrinsicOp::create(k.b, k.vectorType(lanes, element), name, arguments).getResult(0);
}

Value addFours(KernelBuilder &k, Value sum, Value unsignedBytes, Value signedBytes) {
  Type i8 = k.b.getI8Type();
  return intrinsic(k, "llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx512.vpdpbusd.512", k.lanes(), k.i32,
                   {sum, as(k, unsignedBytes, i8), as(k, signedBytes, i8)});
}

Value productsOfPairs(KernelBuilder &k, Value unsignedBytes, Value signedBytes) {
  Type i8 = k.b.getI8Type();
  return intrinsic(k, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx512.pmaddubs.w.512", 2 * k.lanes(), k.b.getI16Type(),
                   {as(k, unsignedBytes, i8), as(k, signedBytes, i8)});
}

Value sumsOfPairs(KernelBuilder &k, Value integers) {
  Type i16 = k.b.getI16Type();
  auto ones = DenseElementsAttr::get(k.vectorType(2 * k.lanes(), i16), ArrayRef<int16_t>{1});
  return intrinsic(k, "llvm.x86.avx2.pmadd.wd", "llvm.x86.avx512.pmaddw.d.512", k.lanes(), k.i32,
                   {integers, arith::ConstantOp::create(k.b, ones)});
}

} // namespace xfc
