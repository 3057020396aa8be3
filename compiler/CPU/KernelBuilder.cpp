// Builds the body of one kernel: scalars, vectors, loops, and the fields of a call.
#include "KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <cmath>

using namespace mlir;

namespace xfc {

KernelBuilder::KernelBuilder(ModuleOp module, const InstructionSet &set, Type element)
    : set(set), element(element), b(module.getLoc(), module.getContext()), module(module) {
  ptr = LLVM::LLVMPointerType::get(module.getContext());
  i64 = b.getI64Type();
  i32 = b.getI32Type();
  i1 = b.getI1Type();
}

VectorType KernelBuilder::vectorType(int64_t n, Type of) const { return VectorType::get({n}, of ? of : element); }

//===--------------------------------------------------------------------------------------------------------===//
// Functions and the call
//===--------------------------------------------------------------------------------------------------------===//

void KernelBuilder::kernel(StringRef name, const std::function<void()> &body) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, name, b.getFunctionType({ptr, i64, ptr}, {}));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  call = entry->getArgument(0);
  chunk = entry->getArgument(1);
  scratch = entry->getArgument(2);
  body();
  func::ReturnOp::create(b);
}

void KernelBuilder::helper(StringRef name, TypeRange arguments, const std::function<void(ValueRange)> &body) {
  if (module.lookupSymbol(name))
    return;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, name, b.getFunctionType(arguments, {}));
  function.setPrivate();
  function->setAttr("llvm.linkage", LLVM::LinkageAttr::get(b.getContext(), LLVM::Linkage::Internal));
  function->setAttr("passthrough", b.getArrayAttr({b.getStringAttr("noinline")}));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  body(entry->getArguments());
  func::ReturnOp::create(b);
}

void KernelBuilder::invoke(StringRef name, ValueRange arguments) {
  func::CallOp::create(b, name, TypeRange{}, arguments);
}

Value KernelBuilder::field(Value record, size_t offset, Type type) {
  Value p = LLVM::GEPOp::create(b, ptr, b.getI8Type(), record, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)},
                                LLVM::GEPNoWrapFlags::inbounds);
  return LLVM::LoadOp::create(b, type, p);
}

Value KernelBuilder::rows() { return field(call, offsetof(xfc_call, rows), ptr); }
Value KernelBuilder::keyRows() { return field(call, offsetof(xfc_call, key_rows), ptr); }
Value KernelBuilder::keys() { return field(call, offsetof(xfc_call, keys), ptr); }
Value KernelBuilder::shape() { return field(call, offsetof(xfc_call, shape), ptr); }
Value KernelBuilder::buffer(int64_t i) { return field(field(call, offsetof(xfc_call, buffers), ptr), i * sizeof(void *), ptr); }
Value KernelBuilder::stride(int64_t i) { return field(field(call, offsetof(xfc_call, strides), ptr), i * 8, i64); }
Value KernelBuilder::immediate(int64_t i) { return field(field(call, offsetof(xfc_call, immediates), ptr), i * 8, i64); }
Value KernelBuilder::training() {
  Value flag = field(shape(), offsetof(xfc_shape, training), i32);
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, flag, i32Of(0));
}

//===--------------------------------------------------------------------------------------------------------===//
// Integers
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::index(int64_t value) { return arith::ConstantOp::create(b, b.getI64IntegerAttr(value)); }
Value KernelBuilder::i32Of(int32_t value) { return arith::ConstantOp::create(b, b.getI32IntegerAttr(value)); }
Value KernelBuilder::boolean(bool value) { return arith::ConstantOp::create(b, b.getBoolAttr(value)); }
Value KernelBuilder::add(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
Value KernelBuilder::sub(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
Value KernelBuilder::mul(Value x, Value y) { return arith::MulIOp::create(b, x, y); }
Value KernelBuilder::div(Value x, int64_t y) { return arith::DivUIOp::create(b, x, index(y)); }
Value KernelBuilder::rem(Value x, int64_t y) { return arith::RemUIOp::create(b, x, index(y)); }
Value KernelBuilder::min(Value x, Value y) { return arith::MinSIOp::create(b, x, y); }
Value KernelBuilder::max(Value x, Value y) { return arith::MaxSIOp::create(b, x, y); }
Value KernelBuilder::equal(Value x, Value y) { return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y); }
Value KernelBuilder::less(Value x, Value y) { return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, x, y); }
Value KernelBuilder::notLess(Value x, Value y) { return arith::CmpIOp::create(b, arith::CmpIPredicate::uge, x, y); }
Value KernelBuilder::both(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
Value KernelBuilder::either(Value x, Value y) { return arith::OrIOp::create(b, x, y); }
Value KernelBuilder::truncated(Value x) { return arith::TruncIOp::create(b, i32, x); }
Value KernelBuilder::select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, condition, x, y); }

Value KernelBuilder::iota(int64_t n) {
  SmallVector<int32_t> numbers;
  for (int64_t i = 0; i < n; ++i)
    numbers.push_back(i);
  return arith::ConstantOp::create(b, DenseElementsAttr::get(vectorType(n, i32), ArrayRef<int32_t>(numbers)));
}

//===--------------------------------------------------------------------------------------------------------===//
// Floats
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::constant(double value, Type like) {
  auto vector = dyn_cast<VectorType>(like);
  TypedAttr number = b.getFloatAttr(vector ? vector.getElementType() : like, value);
  if (vector)
    return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, cast<Attribute>(number)));
  return arith::ConstantOp::create(b, number);
}

Value KernelBuilder::addf(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
Value KernelBuilder::subf(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
Value KernelBuilder::mulf(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
Value KernelBuilder::divf(Value x, Value y) { return arith::DivFOp::create(b, x, y); }
Value KernelBuilder::fma(Value x, Value y, Value z) {
  if (isa<VectorType>(x.getType()))
    return vector::FMAOp::create(b, x, y, z);
  return math::FmaOp::create(b, x, y, z);
}
Value KernelBuilder::lessf(Value x, Value y) { return arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, y); }
Value KernelBuilder::maxf(Value x, Value y) { return select(lessf(y, x), x, y); }
Value KernelBuilder::minf(Value x, Value y) { return select(lessf(x, y), x, y); }
Value KernelBuilder::sqrt(Value x) { return math::SqrtOp::create(b, x); }
Value KernelBuilder::log(Value x) { return math::LogOp::create(b, x); }
Value KernelBuilder::f64Of(Value x) {
  auto vector = dyn_cast<VectorType>(x.getType());
  if (isF64())
    return x;
  Type to = b.getF64Type();
  return arith::ExtFOp::create(b, vector ? Type(VectorType::get(vector.getShape(), to)) : to, x);
}
Value KernelBuilder::elementOf(Value x) { return isF64() ? x : arith::TruncFOp::create(b, element, x).getResult(); }

// exp(x) = 2^n exp(r) with n = round(x / ln 2), |r| <= ln 2 / 2. n comes from adding 1.5 * 2^(mantissa bits),
// which leaves it in the low bits. f32: a minimax polynomial (Cephes), relative error 1e-7; f64: the Taylor
// series to r^13.
Value KernelBuilder::exp(Value x) {
  Type type = x.getType();
  auto vector = dyn_cast<VectorType>(type);
  auto c = [&](double value) { return constant(value, type); };
  Value low = c(isF64() ? -708.0 : -87.3), high = c(isF64() ? 709.0 : 88.37);
  Value vanishes = lessf(x, low);
  x = select(vanishes, low, x);
  x = select(lessf(high, x), high, x);
  Value magic = c(isF64() ? 6755399441055744.0 : 12582912.0);
  Value shifted = fma(x, c(1.44269504088896340736), magic), n = subf(shifted, magic);
  Value r = fma(n, c(isF64() ? -6.93147180369123816490e-01 : -0.693145751953125), x);
  r = fma(n, c(isF64() ? -1.90821492927058770002e-10 : -1.42860682030941723212e-6), r);
  Value p;
  if (isF64()) {
    double factorial = 6227020800.0; // 13!
    p = c(1 / factorial);
    for (int i = 13; i >= 1; --i) {
      factorial /= i;
      p = fma(p, r, c(1 / factorial));
    }
  } else {
    p = c(1.9875691500e-4);
    for (double coefficient : {1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1})
      p = fma(p, r, c(coefficient));
    p = addf(fma(p, mulf(r, r), r), c(1));
  }
  Type integer = isF64() ? i64 : i32;
  Type bits = vector ? Type(VectorType::get(vector.getShape(), integer)) : integer;
  TypedAttr mantissa = b.getIntegerAttr(integer, isF64() ? 52 : 23);
  Value shift = vector ? arith::ConstantOp::create(b, DenseElementsAttr::get(cast<VectorType>(bits), cast<Attribute>(mantissa)))
                       : arith::ConstantOp::create(b, mantissa);
  Value exponent = arith::ShLIOp::create(b, arith::BitcastOp::create(b, bits, shifted), shift);
  Value result = arith::AddIOp::create(b, arith::BitcastOp::create(b, bits, p), exponent);
  return select(vanishes, c(0), arith::BitcastOp::create(b, type, result));
}

// sign(x) (1 - 2 / (exp(2|x|) + 1)); near 0 the series, where the difference would cancel.
Value KernelBuilder::tanh(Value x) {
  auto c = [&](double value) { return constant(value, x.getType()); };
  if (isF64()) {
    Value vector = c(0);
    for (int64_t i = 0; i < lanes(); ++i)
      vector = vector::InsertOp::create(b, math::TanhOp::create(b, lane(x, i)), vector, ArrayRef<int64_t>{i});
    return vector;
  }
  Value size = maxf(x, subf(c(0), x)), square = mulf(x, x);
  Value large = subf(c(1), divf(c(2), addf(exp(addf(size, size)), c(1))));
  large = select(lessf(x, c(0)), subf(c(0), large), large);
  Value series = fma(square, fma(square, c(2.0 / 15), c(-1.0 / 3)), c(1));
  return select(lessf(size, c(0.1)), mulf(x, series), large);
}

// f32: Abramowitz and Stegun 7.1.26, absolute error 1.5e-7.
Value KernelBuilder::erf(Value x) {
  auto c = [&](double value) { return constant(value, x.getType()); };
  if (isF64()) {
    // The C library's: MLIR has no LLVM lowering of math.erf.
    if (!module.lookupSymbol("erf")) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(module.getBody());
      func::FuncOp::create(b, "erf", b.getFunctionType({element}, {element})).setPrivate();
    }
    Value vector = c(0);
    for (int64_t i = 0; i < lanes(); ++i) {
      Value y = func::CallOp::create(b, "erf", TypeRange{element}, ValueRange{lane(x, i)}).getResult(0);
      vector = vector::InsertOp::create(b, y, vector, ArrayRef<int64_t>{i});
    }
    return vector;
  }
  Value size = maxf(x, subf(c(0), x)), t = divf(c(1), fma(c(0.3275911), size, c(1)));
  Value p = c(1.061405429);
  for (double coefficient : {-1.453152027, 1.421413741, -0.284496736, 0.254829592})
    p = fma(p, t, c(coefficient));
  Value result = subf(c(1), mulf(mulf(p, t), exp(subf(c(0), mulf(x, x)))));
  return select(lessf(x, c(0)), subf(c(0), result), result);
}

//===--------------------------------------------------------------------------------------------------------===//
// Memory
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::offset(Value p, Value elements, Type of) {
  return LLVM::GEPOp::create(b, ptr, of ? of : element, p, ArrayRef<LLVM::GEPArg>{elements},
                             LLVM::GEPNoWrapFlags::inbounds);
}
Value KernelBuilder::offset(Value p, int64_t elements, Type of) {
  if (!elements)
    return p;
  return LLVM::GEPOp::create(b, ptr, of ? of : element, p, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(elements)},
                             LLVM::GEPNoWrapFlags::inbounds);
}
Value KernelBuilder::load(Value p, int64_t n) { return LLVM::LoadOp::create(b, vectorType(n), p, bytes()); }
Value KernelBuilder::load(Value p) { return LLVM::LoadOp::create(b, element, p, bytes()); }
Value KernelBuilder::loadI32(Value p, Value i) {
  return arith::ExtSIOp::create(b, i64, LLVM::LoadOp::create(b, i32, offset(p, i, i32)));
}
Value KernelBuilder::loadI64(Value p, Value i) { return LLVM::LoadOp::create(b, i64, offset(p, i, i64)); }
void KernelBuilder::store(Value value, Value p) { LLVM::StoreOp::create(b, value, p, bytes()); }

Value KernelBuilder::loadPart(Value p, int64_t n) {
  Value all = load(p, lanes());
  if (n >= lanes())
    return all;
  SmallVector<bool> used(lanes());
  std::fill_n(used.begin(), n, true);
  Value mask = arith::ConstantOp::create(b, DenseElementsAttr::get(vectorType(lanes(), i1), ArrayRef<bool>(used)));
  return select(mask, all, splat(0));
}

void KernelBuilder::storePart(Value value, Value p, int64_t n) {
  if (n >= lanes())
    return store(value, p);
  SmallVector<bool> used(lanes());
  std::fill_n(used.begin(), n, true);
  storeMasked(value, p, arith::ConstantOp::create(b, DenseElementsAttr::get(vectorType(lanes(), i1), ArrayRef<bool>(used))));
}

void KernelBuilder::storeMasked(Value value, Value p, Value mask) {
  LLVM::MaskedStoreOp::create(b, value, p, mask, bytes());
}

void KernelBuilder::prefetchForWriting(Value p) { LLVM::Prefetch::create(b, p, /*rw=*/1, /*hint=*/3, /*cache=*/1); }

void KernelBuilder::prefetch(Value p) { LLVM::Prefetch::create(b, p, /*rw=*/0, /*hint=*/2, /*cache=*/1); }

Value KernelBuilder::lanesBelow(Value start, Value end) {
  Value count = truncated(sub(end, start));
  Value counts = vector::BroadcastOp::create(b, vectorType(lanes(), i32), count);
  return less(iota(lanes()), counts);
}

//===--------------------------------------------------------------------------------------------------------===//
// Vectors
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::broadcast(Value x) { return vector::BroadcastOp::create(b, vectorType(lanes(), x.getType()), x); }
Value KernelBuilder::lane(Value v, int64_t i) { return vector::ExtractOp::create(b, v, ArrayRef<int64_t>{i}); }

static Value reduce(KernelBuilder &k, Value v, const std::function<Value(Value, Value)> &combine) {
  for (int64_t half = cast<VectorType>(v.getType()).getDimSize(0) / 2; half >= 1; half /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < half; ++i) {
      low.push_back(i);
      high.push_back(half + i);
    }
    v = combine(vector::ShuffleOp::create(k.b, v, v, low), vector::ShuffleOp::create(k.b, v, v, high));
  }
  return k.lane(v, 0);
}
Value KernelBuilder::sum(Value v) {
  return reduce(*this, v, [&](Value x, Value y) { return addf(x, y); });
}
Value KernelBuilder::largest(Value v) {
  return reduce(*this, v, [&](Value x, Value y) { return maxf(x, y); });
}

void KernelBuilder::transpose(SmallVectorImpl<Value> &tile) {
  const int64_t n = tile.size();
  for (int64_t s = 1; s < n; s *= 2) {
    SmallVector<Value> next(n);
    for (int64_t i = 0; i < n; ++i) {
      if (i & s)
        continue;
      SmallVector<int64_t> low, high;
      for (int64_t j = 0; j < n; ++j) {
        low.push_back(j & s ? n + (j ^ s) : j);
        high.push_back(j & s ? n + j : j | s);
      }
      next[i] = vector::ShuffleOp::create(b, tile[i], tile[i | s], low);
      next[i | s] = vector::ShuffleOp::create(b, tile[i], tile[i | s], high);
    }
    tile = next;
  }
}

//===--------------------------------------------------------------------------------------------------------===//
// Control
//===--------------------------------------------------------------------------------------------------------===//

Values KernelBuilder::loop(Value from, Value to, int64_t step, ValueRange state,
                           const std::function<Values(Value, Values)> &body) {
  auto loop = scf::ForOp::create(b, from, to, index(step), state);
  OpBuilder::InsertionGuard guard(b);
  if (state.empty()) {
    b.setInsertionPoint(loop.getBody()->getTerminator());
    body(loop.getInductionVar(), {});
  } else {
    b.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(b, body(loop.getInductionVar(), Values(loop.getRegionIterArgs())));
  }
  return Values(loop.getResults());
}

void KernelBuilder::loop(Value from, Value to, int64_t step, const std::function<void(Value)> &body) {
  loop(from, to, step, {}, [&](Value i, Values) -> Values {
    body(i);
    return {};
  });
}

void KernelBuilder::when(Value condition, const std::function<void()> &then, const std::function<void()> &otherwise) {
  auto branch = scf::IfOp::create(b, TypeRange{}, condition, /*withElseRegion=*/static_cast<bool>(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  then();
  if (otherwise) {
    b.setInsertionPoint(branch.elseYield());
    otherwise();
  }
}

Values KernelBuilder::choose(Value condition, const std::function<Values()> &then,
                             const std::function<Values()> &otherwise) {
  OpBuilder::InsertionGuard guard(b);
  auto branch = scf::IfOp::create(
      b, condition, [&](OpBuilder &at, Location) {
        OpBuilder::InsertionGuard inner(b);
        b.setInsertionPoint(at.getInsertionBlock(), at.getInsertionPoint());
        Values results = then();
        scf::YieldOp::create(b, results);
      },
      [&](OpBuilder &at, Location) {
        OpBuilder::InsertionGuard inner(b);
        b.setInsertionPoint(at.getInsertionBlock(), at.getInsertionPoint());
        Values results = otherwise();
        scf::YieldOp::create(b, results);
      });
  return Values(branch.getResults());
}

Values KernelBuilder::features(int64_t count, ValueRange state,
                               const std::function<Values(Value, int64_t, Values)> &body) {
  const int64_t whole = count / lanes() * lanes();
  Values result(state);
  if (whole)
    result = loop(index(0), index(whole), lanes(), state, [&](Value f, Values s) { return body(f, lanes(), s); });
  if (whole < count)
    result = body(index(whole), count - whole, result);
  return result;
}

void KernelBuilder::features(int64_t count, const std::function<void(Value, int64_t)> &body) {
  features(count, {}, [&](Value f, int64_t used, Values) -> Values {
    body(f, used);
    return {};
  });
}

void KernelBuilder::eachRow(int64_t per, const std::function<void(Value)> &body) {
  Value from = mul(chunk, per);
  loop(from, min(add(from, per), rowCount()), 1, body);
}

//===--------------------------------------------------------------------------------------------------------===//
// Random numbers
//===--------------------------------------------------------------------------------------------------------===//

KernelBuilder::DropoutKey KernelBuilder::dropoutKey(Value op, Value position, Value sentence, Value headPlusOne) {
  Value s = shape();
  Value key0 = field(s, offsetof(xfc_shape, dropout_key), i32), key1 = field(s, offsetof(xfc_shape, dropout_key) + 4, i32);
  return {arith::XOrIOp::create(b, key0, truncated(op)), key1, truncated(position), truncated(sentence),
          truncated(headPlusOne)};
}

std::array<Value, 4> KernelBuilder::philox(const DropoutKey &key, Value counters) {
  // Even and odd counters apart, each in the low half of 64 bits: a product's halves are then in one lane, and what is above the
  // low half does not matter to the next product.
  const int64_t n = cast<VectorType>(counters.getType()).getNumElements();
  auto wide = VectorType::get({n / 2}, i64);
  auto wideConstant = [&](int64_t value) -> Value { return arith::ConstantOp::create(b, DenseElementsAttr::get(wide, b.getI64IntegerAttr(value))); };
  auto wideOf = [&](Value scalar) -> Value { return vector::BroadcastOp::create(b, wide, arith::ExtUIOp::create(b, i64, scalar)); };
  Value low = wideConstant(0xFFFFFFFF), half = wideConstant(32), m0 = wideConstant(0xD2511F53), m1 = wideConstant(0xCD9E8D57);
  auto lowOf = [&](Value x) -> Value { return arith::AndIOp::create(b, x, low); };
  auto highOf = [&](Value x) -> Value { return arith::ShRUIOp::create(b, x, half); };
  Value pairs = vector::BitCastOp::create(b, wide, counters);
  std::array<std::array<Value, 4>, 2> words;
  for (int odd = 0; odd < 2; ++odd) {
    Value c0 = odd ? highOf(pairs) : pairs, c1 = wideOf(key.position), c2 = wideOf(key.sentence), c3 = wideOf(key.head);
    Value k0 = key.key0, k1 = key.key1;
    for (int round = 0; round < 7; ++round) {
      Value p0 = arith::MulIOp::create(b, m0, lowOf(c0)), p1 = arith::MulIOp::create(b, m1, lowOf(c2));
      auto mix = [&](Value product, Value counter, Value key) -> Value {
        return arith::XOrIOp::create(b, highOf(product), arith::XOrIOp::create(b, counter, wideOf(key)));
      };
      c0 = mix(p1, c1, k0);
      c2 = mix(p0, c3, k1);
      c1 = p1;
      c3 = p0;
      k0 = add(k0, i32Of(static_cast<int32_t>(0x9E3779B9u)));
      k1 = add(k1, i32Of(static_cast<int32_t>(0xBB67AE85u)));
    }
    words[odd] = {c0, c1, c2, c3};
  }
  std::array<Value, 4> numbers;
  for (int word = 0; word < 4; ++word) {
    Value both = arith::OrIOp::create(b, lowOf(words[0][word]), arith::ShLIOp::create(b, words[1][word], half));
    numbers[word] = vector::BitCastOp::create(b, counters.getType(), both);
  }
  return numbers;
}

Value KernelBuilder::keepFactor(Value words, double rate) {
  auto threshold = static_cast<uint32_t>(std::floor(rate * 4294967296.0));
  Value kept = arith::CmpIOp::create(b, arith::CmpIPredicate::uge, words, broadcast(i32Of(static_cast<int32_t>(threshold))));
  return select(kept, splat(1 / (1 - rate)), splat(0));
}

} // namespace xfc
