// Builds the body of one kernel for a CPU: functions, floats, memory, vectors, and random numbers.
#include "KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <utility>

using namespace mlir;

namespace xfc {

KernelBuilder::KernelBuilder(ModuleOp module, const InstructionSet &set, Type element)
    : Machine(module, element, /*addressSpace=*/0, /*constantCalls=*/false), set(set), vectorBytes(set.vectorBytes) {}

//===--------------------------------------------------------------------------------------------------------===//
// Functions
//===--------------------------------------------------------------------------------------------------------===//

void KernelBuilder::kernel(StringRef name, const std::function<void()> &body) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, name, b.getFunctionType({ptr, i64, i64, ptr}, {}));
  entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  call = entry->getArgument(0);
  chunk = entry->getArgument(1);
  previous = entry->getArgument(2);
  scratch = at(entry->getArgument(3));
  keysOfRounds = {};
  body();
  for (const std::function<void()> &last : std::exchange(atEndOfKernel, {}))
    last();
  func::ReturnOp::create(b);
}

void KernelBuilder::atEnd(std::function<void()> last) { atEndOfKernel.push_back(std::move(last)); }

View KernelBuilder::scratchRow(int64_t width) {
  View row = scratch + scratchElements;
  scratchElements += width + 64; // vectors are stored whole
  return row;
}

Value KernelBuilder::onStack(Type type) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(entry);
  return LLVM::AllocaOp::create(b, ptr, type, index(1));
}

void KernelBuilder::helper(StringRef name, TypeRange arguments, const std::function<void(ValueRange)> &body) {
  if (module.lookupSymbol(name))
    return;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, name, b.getFunctionType(arguments, {}));
  function->setAttr("passthrough", b.getArrayAttr({b.getStringAttr("noinline")}));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  body(entry->getArguments());
  func::ReturnOp::create(b);
}

void KernelBuilder::invoke(StringRef name, ValueRange arguments) {
  func::CallOp::create(b, name, TypeRange{}, arguments);
}

//===--------------------------------------------------------------------------------------------------------===//
// Floats
//===--------------------------------------------------------------------------------------------------------===//

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
  Value shifted = fma(x, 1.44269504088896340736, magic), n = subf(shifted, magic);
  Value r = fma(n, isF64() ? -6.93147180369123816490e-01 : -0.693145751953125, x);
  r = fma(n, isF64() ? -1.90821492927058770002e-10 : -1.42860682030941723212e-6, r);
  Value p;
  if (isF64()) {
    double factorial = 6227020800.0; // 13!
    p = c(1 / factorial);
    for (int i = 13; i >= 1; --i) {
      factorial /= i;
      p = fma(p, r, 1 / factorial);
    }
  } else {
    p = c(1.9875691500e-4);
    for (double coefficient : {1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1})
      p = fma(p, r, coefficient);
    p = addf(fma(p, mulf(r, r), r), 1);
  }
  Type integer = isF64() ? i64 : i32;
  Type bits = vector ? Type(VectorType::get(vector.getShape(), integer)) : integer;
  Value mantissa = constant(isF64() ? 52 : 23, bits);
  Value exponent = arith::ShLIOp::create(b, arith::BitcastOp::create(b, bits, shifted), mantissa);
  Value result = arith::AddIOp::create(b, arith::BitcastOp::create(b, bits, p), exponent);
  return select(vanishes, 0, arith::BitcastOp::create(b, type, result));
}

Value KernelBuilder::tanh(Value x) {
  if (!isF64())
    return CodeBuilder::tanh(x);
  Value vector = splat(0);
  for (int64_t i = 0; i < lanes(); ++i)
    vector = vector::InsertOp::create(b, math::TanhOp::create(b, lane(x, i)), vector, ArrayRef<int64_t>{i});
  return vector;
}

Value KernelBuilder::erf(Value x) {
  if (!isF64())
    return CodeBuilder::erf(x);
  // Calls the C library, because MLIR has no lowering of math.erf to LLVM.
  if (!module.lookupSymbol("erf")) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(module.getBody());
    func::FuncOp::create(b, "erf", b.getFunctionType({element}, {element})).setPrivate();
  }
  Value vector = splat(0);
  for (int64_t i = 0; i < lanes(); ++i) {
    Value y = func::CallOp::create(b, "erf", TypeRange{element}, ValueRange{lane(x, i)}).getResult(0);
    vector = vector::InsertOp::create(b, y, vector, ArrayRef<int64_t>{i});
  }
  return vector;
}

//===--------------------------------------------------------------------------------------------------------===//
// Memory
//===--------------------------------------------------------------------------------------------------------===//

Type KernelBuilder::inMemory(Type stored) { return stored.isBF16() && !set.bf16 ? b.getI16Type() : stored; }

Value KernelBuilder::widened(Value v, Type stored) {
  return inMemory(stored) == stored ? Machine::widened(v, stored) : widenedByBits(v);
}

Value KernelBuilder::narrowed(Value v, Type stored) {
  if (inMemory(stored) == stored || !getElementTypeOrSelf(v).isF32())
    return Machine::narrowed(v, stored);
  Value words = bitsOfBF16(v), half = constant(16, words);
  return arith::TruncIOp::create(b, withElements(v.getType(), inMemory(stored)),
                                 arith::ShRUIOp::create(b, words, half));
}

// A NaN keeps its upper half with the quiet bit set, so that it does not become an infinity.
Value KernelBuilder::bitsOfBF16(Value x) {
  Type type = withElements(x.getType(), i32);
  auto number = [&](uint32_t bits) { return constant(static_cast<int32_t>(bits), type); };
  Value bits = arith::BitcastOp::create(b, type, x), half = number(16), upper = arith::ShRUIOp::create(b, bits, half),
        one = number(1);
  Value odd = arith::AndIOp::create(b, upper, one), nearest = add(add(bits, 0x7fff), odd), quietBit = number(0x400000);
  Value quiet = arith::OrIOp::create(b, bits, quietBit),
        isNumber = arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, x, x);
  return select(isNumber, nearest, quiet);
}

Value KernelBuilder::load(const View &p, int64_t n) {
  return loaded(LLVM::LoadOp::create(b, vectorType(n, inMemory(p.element)), p.data, bytesOf(p.element)), p);
}
Value KernelBuilder::firstLanes(int64_t n) {
  SmallVector<bool> used(lanes());
  std::fill_n(used.begin(), n, true);
  return arith::ConstantOp::create(b, DenseElementsAttr::get(vectorType(lanes(), i1), ArrayRef<bool>(used)));
}
Value KernelBuilder::upTo(int64_t n, Value x, const Term &rest) {
  return n >= lanes() ? x : select(firstLanes(n), x, rest);
}

Value KernelBuilder::loadPart(const View &p, int64_t n) { return upTo(n, load(p, lanes()), 0); }

void KernelBuilder::storePart(Value value, const View &p, int64_t n) {
  n >= lanes() ? store(value, p) : storeMasked(value, p, firstLanes(n));
}

Value KernelBuilder::loadMasked(const View &p, Value mask) {
  VectorType type = vectorType(lanes(), inMemory(p.element));
  return loaded(LLVM::MaskedLoadOp::create(b, type, p.data, mask, constant(0, type), bytesOf(p.element)), p);
}

void KernelBuilder::storeMasked(Value value, const View &p, Value mask) {
  LLVM::MaskedStoreOp::create(b, narrowed(value, p.element), p.data, mask, bytesOf(p.element));
}

void KernelBuilder::storePastCaches(Value value, const View &p) {
  auto store = LLVM::StoreOp::create(b, narrowed(value, p.element), p.data, vectorBytes);
  store.setNontemporal(true);
}

void KernelBuilder::completeStores() {
  LLVM::CallIntrinsicOp::create(b, b.getStringAttr("llvm.x86.sse.sfence"), ValueRange());
}

void KernelBuilder::prefetchForWriting(const View &p) {
  LLVM::Prefetch::create(b, p.data, /*rw=*/1, /*hint=*/3, /*cache=*/1);
}

void KernelBuilder::prefetch(const View &p) { LLVM::Prefetch::create(b, p.data, /*rw=*/0, /*hint=*/2, /*cache=*/1); }

Value KernelBuilder::lanesBelow(const Term &start, const Term &end) {
  Value count = truncated(sub(end, start));
  Value counts = vector::BroadcastOp::create(b, vectorType(lanes(), i32), count);
  return less(iota(lanes()), counts);
}

//===--------------------------------------------------------------------------------------------------------===//
// Vectors
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::iota(int64_t n) {
  SmallVector<int32_t> numbers;
  for (int64_t i = 0; i < n; ++i)
    numbers.push_back(i);
  return arith::ConstantOp::create(b, DenseElementsAttr::get(vectorType(n, i32), ArrayRef<int32_t>(numbers)));
}

Value KernelBuilder::broadcast(Value x) { return vector::BroadcastOp::create(b, vectorType(lanes(), x.getType()), x); }
Value KernelBuilder::spread(Value x) { return isa<VectorType>(x.getType()) ? x : broadcast(x); }
Value KernelBuilder::lane(Value v, int64_t i) { return vector::ExtractOp::create(b, v, ArrayRef<int64_t>{i}); }

std::pair<Value, Value> KernelBuilder::halves(Value v) {
  SmallVector<int64_t> low, high;
  const int64_t half = cast<VectorType>(v.getType()).getDimSize(0) / 2;
  for (int64_t i = 0; i < half; ++i) {
    low.push_back(i);
    high.push_back(half + i);
  }
  return {vector::ShuffleOp::create(b, v, v, low), vector::ShuffleOp::create(b, v, v, high)};
}

static Value reduce(KernelBuilder &k, Value v, const std::function<Value(Value, Value)> &combine) {
  while (cast<VectorType>(v.getType()).getDimSize(0) > 1) {
    auto [low, high] = k.halves(v);
    v = combine(low, high);
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

Values KernelBuilder::features(int64_t count, ValueRange state,
                               const std::function<Values(Value, int64_t, Values)> &body) {
  const int64_t whole = count / lanes() * lanes();
  Values result(state);
  if (whole)
    result = loop(0, whole, lanes(), state, [&](Value f, Values s) { return body(f, lanes(), std::move(s)); });
  if (whole < count)
    result = body(index(whole), count - whole, result);
  return result;
}

void KernelBuilder::features(int64_t count, const std::function<void(Value, int64_t)> &body) {
  features(count, {}, [&](Value f, int64_t used, const Values &) -> Values {
    body(f, used);
    return {};
  });
}

void KernelBuilder::eachRow(int64_t per, const std::function<void(Value)> &body) {
  Value from = mul(chunk, per), rows = rowCount();
  loop(from, min(add(from, per), rows), 1, body);
}

//===--------------------------------------------------------------------------------------------------------===//
// Random numbers
//===--------------------------------------------------------------------------------------------------------===//

static constexpr int64_t philoxRounds = 7;

View KernelBuilder::roundKeys() {
  if (keysOfRounds)
    return keysOfRounds;
  auto type = VectorType::get({2 * philoxRounds}, i64);
  keysOfRounds = at(onStack(type), i64);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(keysOfRounds.data.getDefiningOp());
  Value op = dropoutId(), none = index(0);
  DropoutKey key = dropoutKey(op, none, none, 0);
  for (int64_t round = 0; round < philoxRounds; ++round) {
    auto store = [&](Value word, int64_t i) {
      Value wide = arith::ExtUIOp::create(b, i64, word);
      LLVM::StoreOp::create(b, wide, (keysOfRounds + (2 * round + i)).data);
    };
    store(key.key0, 0);
    store(key.key1, 1);
    key.key0 = add(key.key0, i32Of(static_cast<int32_t>(0x9E3779B9u)));
    key.key1 = add(key.key1, i32Of(static_cast<int32_t>(0xBB67AE85u)));
  }
  return keysOfRounds;
}

KernelBuilder::DropoutRow KernelBuilder::dropoutRow(Value row) {
  auto read = [&](size_t member, Value at) { return loadI32(field(rows(), member, ptr), at); };
  Value sequence = read(offsetof(xfc_rows, sequence_of), row);
  Value sentence = read(offsetof(xfc_rows, sentences), sequence), position = read(offsetof(xfc_rows, positions), row);
  return dropoutRow(position, sentence, 0);
}

std::array<Value, 4> KernelBuilder::philox(const DropoutRow &row, Value counters) {
  // Counters are in the low halves of 64 bits, so that both halves of a product are in one lane, and the next product
  // ignores the upper half. If they do not fit a register so, even and odd ones are processed separately. Only the
  // first of a counter's four words differs between lanes, so half of the products of the first two rounds are of
  // scalars.
  const View keys = roundKeys();
  const int64_t n = cast<VectorType>(counters.getType()).getNumElements(), chains = n * 8 <= vectorBytes ? 1 : 2;
  auto wide = VectorType::get({n / chains}, i64);
  auto isWide = [&](Value x) { return x.getType() == wide; };
  auto widened = [&](Value x) -> Value { return isWide(x) ? x : vector::BroadcastOp::create(b, wide, x); };
  auto number = [&](int64_t value, Value like) -> Value {
    if (!isWide(like))
      return index(value);
    return arith::ConstantOp::create(b, DenseElementsAttr::get(wide, b.getI64IntegerAttr(value)));
  };
  auto lowOf = [&](Value x) -> Value { return arith::AndIOp::create(b, x, number(0xFFFFFFFF, x)); };
  auto highOf = [&](Value x) -> Value { return arith::ShRUIOp::create(b, x, number(32, x)); };
  auto times = [&](int64_t factor, Value x) -> Value {
    Value low = lowOf(x);
    return arith::MulIOp::create(b, number(factor, x), low);
  };
  auto combined = [&](Value x, Value y) -> Value {
    if (isWide(x) || isWide(y)) {
      x = widened(x);
      y = widened(y);
    }
    return arith::XOrIOp::create(b, x, y);
  };
  // Scalars are combined before they become vectors.
  auto mix = [&](Value product, Value counter, int64_t key) -> Value {
    Value high = highOf(product), keyOfRound = LLVM::LoadOp::create(b, i64, (keys + key).data);
    return combined(high, combined(counter, keyOfRound));
  };
  auto extended = [&](Value word) -> Value { return arith::ExtUIOp::create(b, i64, word); };
  Value first = chains == 1 ? arith::ExtUIOp::create(b, wide, counters).getResult()
                            : vector::BitCastOp::create(b, wide, counters).getResult();
  std::array<std::array<Value, 4>, 2> words;
  for (int chain = 0; chain < chains; ++chain) {
    Value c0 = chain ? highOf(first) : first, c1 = extended(row.position), c2 = extended(row.sentence),
          c3 = extended(row.head);
    for (int64_t round = 0; round < philoxRounds; ++round) {
      Value p0 = times(0xD2511F53, c0), p1 = times(0xCD9E8D57, c2);
      c0 = mix(p1, c1, 2 * round);
      c2 = mix(p0, c3, 2 * round + 1);
      c1 = p1;
      c3 = p0;
    }
    words[chain] = {c0, c1, c2, c3};
  }
  SmallVector<int64_t> lowHalves;
  for (int64_t i = 0; i < n; ++i)
    lowHalves.push_back(i % 2 ? n + i - 1 : i);
  std::array<Value, 4> numbers;
  for (int word = 0; word < 4; ++word) {
    if (chains == 1) {
      numbers[word] = arith::TruncIOp::create(b, counters.getType(), words[0][word]);
      continue;
    }
    Value even = vector::BitCastOp::create(b, counters.getType(), words[0][word]);
    Value odd = vector::BitCastOp::create(b, counters.getType(), words[1][word]);
    numbers[word] = vector::ShuffleOp::create(b, even, odd, lowHalves);
  }
  return numbers;
}

std::array<Value, 4> KernelBuilder::wordsOf64(const DropoutRow &row, Value first) {
  Value counter = truncated(div(first, 8)), eight = iota(8);
  return philox(row, add(vector::BroadcastOp::create(b, eight.getType(), counter), eight));
}

Value KernelBuilder::randomNumbers(const std::array<Value, 4> &words, int64_t i) {
  Value upper = words[i / 16], lower = lowerHalves(upper);
  SmallVector<int64_t> order;
  for (int64_t lane = i % 16; lane < i % 16 + lanes(); ++lane)
    order.push_back(lane);
  return vector::ShuffleOp::create(b, lower, upper, order);
}
Value KernelBuilder::lowerHalves(Value words) {
  Value sixteen = vector::BroadcastOp::create(b, words.getType(), i32Of(16));
  return arith::ShLIOp::create(b, words, sixteen);
}

Value KernelBuilder::keepFactor(Value numbers, double rate) {
  Value kept = notLess(numbers, broadcast(i32Of(static_cast<int32_t>(xfc_threshold(rate) << 16))));
  return select(kept, splat(1 / (1 - rate)), 0);
}

} // namespace xfc
