// Builds the body of one kernel for a GPU.
#include "KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"
#include <cassert>
#include <utility>

using namespace mlir;

namespace xfc::gpu {

static constexpr unsigned globalSpace = 1, sharedSpace = 3;
static constexpr const char *sharedName = "shared";

// The call's fields are constant: the host, or an earlier copy in the stream, writes them before the kernel starts.
KernelBuilder::KernelBuilder(ModuleOp module, const Architecture &architecture)
    : Machine(module, Float32Type::get(module.getContext()), globalSpace, /*constantCalls=*/true),
      architecture(architecture) {}

//===--------------------------------------------------------------------------------------------------------===//
// Functions and threads
//===--------------------------------------------------------------------------------------------------------===//

void KernelBuilder::kernel(StringRef name, const std::function<void()> &body) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  auto function =
      LLVM::LLVMFuncOp::create(b, name, LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), {i64}));
  b.setInsertionPointToStart(function.addEntryBlock(b));
  call = LLVM::IntToPtrOp::create(b, ptr, function.getArgument(0));
  chunk = arith::ExtUIOp::create(b, i64, NVVM::BlockIdXOp::create(b, i32));
  sharedNext = sharedEnd = 0;
  body();
  LLVM::ReturnOp::create(b, ValueRange{});
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                    b.getDenseI32ArrayAttr({static_cast<int32_t>(threads), 1, 1}));
  if (registers)
    function->setAttr(NVVM::NVVMDialect::getMaxnregAttrName(), b.getI32IntegerAttr(static_cast<int32_t>(registers)));
  if (cluster > 1)
    function->setAttr(NVVM::NVVMDialect::getClusterDimAttrName(),
                      b.getDenseI32ArrayAttr({static_cast<int32_t>(cluster), 1, 1}));
}

Value KernelBuilder::thread() { return NVVM::ThreadIdXOp::create(b, i32); }
Value KernelBuilder::quotientUp(Value a, Value b) {
  Value withRest = add(a, sub(b, 1));
  return ptx("div.u32 $0, $1, $2;", {withRest, b}, {i32}, /*pure=*/true)[0];
}
Value KernelBuilder::blocks() { return NVVM::GridDimXOp::create(b, i32); }
Value KernelBuilder::lane() { return bitAnd(thread(), warpSize - 1); }
Value KernelBuilder::warp() { return shiftRight(thread(), 5); }

//===--------------------------------------------------------------------------------------------------------===//
// Shared memory and barriers
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::sharedBase() {
  if (!module.lookupSymbol(sharedName)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    LLVM::GlobalOp::create(b, LLVM::LLVMArrayType::get(b.getI8Type(), 0), /*isConstant=*/false, LLVM::Linkage::External,
                           sharedName, Attribute(),
                           /*alignment=*/1024, sharedSpace);
  }
  return LLVM::AddressOfOp::create(b, LLVM::LLVMPointerType::get(b.getContext(), sharedSpace), sharedName);
}

Value KernelBuilder::shared(int64_t bytes, int64_t alignment) {
  const int64_t begin = llvm::alignTo(sharedNext, alignment);
  sharedNext = begin + bytes;
  sharedEnd = std::max(sharedEnd, sharedNext);
  return (at(sharedBase(), b.getI8Type()) + begin).data;
}

void KernelBuilder::barrier() { NVVM::Barrier0Op::create(b); }

//===--------------------------------------------------------------------------------------------------------===//
// Shuffles and reductions
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::shuffleXor(Value v, int64_t mask) {
  auto move = [&](Value word) -> Value {
    Value members = i32Of(-1), lanes = i32Of(static_cast<int32_t>(mask)), clamp = i32Of(31);
    return NVVM::ShflOp::create(b, word.getType(), members, word, lanes, clamp, NVVM::ShflKind::bfly, UnitAttr());
  };
  Type type = v.getType();
  if (type.getIntOrFloatBitWidth() == 32)
    return move(v);
  // 64 bits are shuffled in two halves.
  Value whole = bits(v, i64);
  Value low = move(truncated(whole)), high = move(truncated(shiftRight(whole, 32)));
  auto wide = [&](Value word) -> Value { return arith::ExtUIOp::create(b, i64, word); };
  Value upper = shiftLeft(wide(high), 32);
  return bits(bitOr(wide(low), upper), type);
}

Value KernelBuilder::acrossLanes(Value v, const Combine &combine, int64_t lanes) {
  assert(llvm::isPowerOf2_64(lanes) && lanes <= warpSize);
  for (int64_t mask = lanes / 2; mask >= 1; mask /= 2)
    v = combine(v, shuffleXor(v, mask));
  return v;
}
Value KernelBuilder::warpSum(Value v, int64_t lanes) {
  return acrossLanes(v, [&](Value x, Value y) { return addf(x, y); }, lanes);
}
Value KernelBuilder::warpMax(Value v, int64_t lanes) {
  return acrossLanes(v, [&](Value x, Value y) { return maxf(x, y); }, lanes);
}

// Finds the largest upper half, and then the largest lower half among the lanes that have this upper half.
Value KernelBuilder::warpLargest(Value v) {
  auto largest = [&](Value word) { return ptx("redux.sync.max.u32 $0, $1, 0xffffffff;", {word}, {i32})[0]; };
  Value own = truncated(shiftRight(v, 32)), upper = largest(own);
  Value isLargest = equal(own, upper), lower = largest(select(isLargest, truncated(v), 0));
  auto wide = [&](Value word) -> Value { return arith::ExtUIOp::create(b, i64, word); };
  Value shifted = shiftLeft(wide(upper), 32);
  return bitOr(shifted, wide(lower));
}

Value KernelBuilder::acrossBlock(Value v, const Combine &combine) {
  assert(llvm::isPowerOf2_64(warps()));
  v = acrossLanes(v, combine);
  if (warps() == 1)
    return v;
  const int64_t mark = sharedMark(), size = v.getType().getIntOrFloatBitWidth() / 8;
  const View parts = at(shared(warps() * size), v.getType());
  when(equal(lane(), 0), [&] { store(v, parts + warp()); });
  barrier();
  Value part = CodeBuilder::load(parts + bitAnd(thread(), warps() - 1));
  Value result = acrossLanes(part, combine, warps());
  barrier(); // the parts may be overwritten from here on
  releaseShared(mark);
  return result;
}
Value KernelBuilder::blockSum(Value v) {
  return acrossBlock(v, [&](Value x, Value y) { return addf(x, y); });
}

//===--------------------------------------------------------------------------------------------------------===//
// Integers
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::bitAnd(Value x, int64_t y) { return arith::AndIOp::create(b, x, integer(y, x.getType())); }
Value KernelBuilder::bitOr(Value x, Value y) { return arith::OrIOp::create(b, x, y); }
Value KernelBuilder::bitXor(Value x, Value y) { return arith::XOrIOp::create(b, x, y); }
Value KernelBuilder::shiftLeft(Value x, int64_t y) { return arith::ShLIOp::create(b, x, integer(y, x.getType())); }
Value KernelBuilder::shiftRight(Value x, int64_t y) { return arith::ShRUIOp::create(b, x, integer(y, x.getType())); }
Value KernelBuilder::bits(Value x, Type type) {
  return x.getType() == type ? x : arith::BitcastOp::create(b, type, x).getResult();
}

//===--------------------------------------------------------------------------------------------------------===//
// Floats
//===--------------------------------------------------------------------------------------------------------===//

Value KernelBuilder::exp2(Value x) { return ptx("ex2.approx.ftz.f32 $0, $1;", {x}, {x.getType()}, /*pure=*/true)[0]; }

Value KernelBuilder::exp(Value x) {
  Value power = exp2(mulf(x, 1.44269504088896340736));
  return select(lessf(x, -87.3), 0, power);
}

Value KernelBuilder::log(Value x) {
  return mulf(ptx("lg2.approx.ftz.f32 $0, $1;", {x}, {x.getType()}, /*pure=*/true)[0], 0.69314718055994530942);
}

Value KernelBuilder::maxf(Value x, Value y) { return arith::MaxNumFOp::create(b, x, y); }

//===--------------------------------------------------------------------------------------------------------===//
// Memory
//===--------------------------------------------------------------------------------------------------------===//

// By bits: LLVM would compare a bf16 that it knows to be one, with an instruction that ptxas does not have
// (setp.ftz.bf16).
Value KernelBuilder::widened(Value v, Type stored) {
  return v.getType().isBF16() ? widenedByBits(v) : CodeBuilder::widened(v, stored);
}

Values KernelBuilder::load(const View &p, int64_t n) {
  if (n == 1)
    return {CodeBuilder::load(p)};
  if (p.element.isBF16())
    return scaled(halvesOf(load(p.as(i32), n / 2)), p);
  if (p.element.isInteger(8) && n == 2)
    return {CodeBuilder::load(p), CodeBuilder::load(p + 1)};
  if (p.element.isInteger(8))
    return scaled(quartersOf(load(p.as(i32), n / 4)), p);
  Value vector = LLVM::LoadOp::create(b, vectorType(n, p.element), p.data, n * bytesOf(p.element));
  Values values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(loaded(LLVM::ExtractElementOp::create(b, vector, i32Of(static_cast<int32_t>(i))), p));
  return values;
}

void KernelBuilder::store(ArrayRef<Value> values, const View &p) {
  const int64_t n = values.size();
  if (n == 1)
    return CodeBuilder::store(values.front(), p);
  if (p.element.isInteger(8))
    return store(wordsOf(values), p.as(i32));
  Value whole = LLVM::PoisonOp::create(b, vectorType(n, p.element));
  for (int64_t i = 0; i < n; ++i) {
    Value value = narrowed(values[i], p.element);
    whole = LLVM::InsertElementOp::create(b, whole, value, i32Of(static_cast<int32_t>(i)));
  }
  LLVM::StoreOp::create(b, whole, p.data, n * bytesOf(p.element));
}

// The n operands from number `from` on, as "$2" or "{$2, $3}", and the instruction's suffix for n: "", ".v2" or ".v4".
static std::string operandsOf(int64_t from, int64_t n) {
  std::string list;
  for (int64_t i = from; i < from + n; ++i)
    list += (i > from ? ", $" : "$") + std::to_string(i);
  return n > 1 ? "{" + list + "}" : list;
}
static std::string vectorOf(int64_t n) { return n > 1 ? ".v" + std::to_string(n) : ""; }

Values KernelBuilder::scaled(Values values, const View &p) {
  if (p.scale)
    for (Value &value : values)
      value = mulf(value, p.scale);
  return values;
}

// Numbers of 8 and of 16 bits are accessed as words of 32 bits, unless there is only one.
Values KernelBuilder::loadIf(Value condition, const View &p, int64_t n) {
  if (p.element.isBF16() && n > 1)
    return scaled(halvesOf(loadIf(condition, p.as(i32), n / 2)), p);
  if (p.element.isInteger(8) && n > 1)
    return scaled(quartersOf(loadIf(condition, p.as(i32), n / 4)), p);
  if (p.element.isInteger(8)) {
    Value number = ptx("mov.b32 $0, 0; @$1 ld.global.s8 $0, [$2];", {condition, p.data}, {i32})[0];
    return scaled({arith::SIToFPOp::create(b, element, number)}, p);
  }
  const std::string type = ".b" + std::to_string(8 * bytesOf(p.element));
  std::string code;
  for (int64_t i = 0; i < n; ++i)
    code += "mov" + type + " $" + std::to_string(i) + ", 0; ";
  code += "@$" + std::to_string(n) + " ld.global" + vectorOf(n) + type + " " + operandsOf(0, n) + ", [$" +
          std::to_string(n + 1) + "];";
  if (!p.element.isBF16())
    return scaled(ptx(code, {condition, p.data}, SmallVector<Type>(n, p.element)), p);
  return {loaded(bits(ptx(code, {condition, p.data}, {b.getI16Type()})[0], p.element), p)};
}

void KernelBuilder::storeIf(Value condition, ArrayRef<Value> values, const View &p) {
  Values stored(values);
  View to = p;
  if (p.element.isBF16()) {
    to = p.as(values.size() == 1 ? Type(b.getI16Type()) : i32);
    stored.clear();
    if (values.size() == 1)
      stored.push_back(bits(narrowed(values.front(), p.element), to.element));
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      stored.push_back(pairOfBF16(values[i], values[i + 1]));
  }
  if (p.element.isInteger(8)) {
    to = p.as(values.size() == 1 ? p.element : i32);
    stored = values.size() == 1 ? Values{integerOf(values.front())} : wordsOf(values);
  }
  const auto n = static_cast<int64_t>(stored.size());
  SmallVector<Value> operands = {condition, p.data};
  operands.append(stored.begin(), stored.end());
  ptx("@$0 st.global" + vectorOf(n) + ".b" + std::to_string(8 * bytesOf(to.element)) + " [$1], " + operandsOf(2, n) +
          ";",
      operands, {});
}

Value KernelBuilder::pairOfBF16(Value first, Value second) {
  return ptx("cvt.rn.bf16x2.f32 $0, $1, $2;", {second, first}, {i32}, /*pure=*/true)[0];
}

Value KernelBuilder::integerOf(Value number) {
  return ptx("cvt.rni.s32.f32 $0, $1;", {number}, {i32}, /*pure=*/true)[0];
}

Values KernelBuilder::wordsOf(ArrayRef<Value> numbers) {
  Values words;
  for (size_t i = 0; i < numbers.size(); i += 4) {
    Value word = bitAnd(integerOf(numbers[i]), 255);
    for (size_t byte = 1; byte < 4; ++byte)
      word = bitOr(word, shiftLeft(bitAnd(integerOf(numbers[i + byte]), 255), static_cast<int64_t>(8 * byte)));
    words.push_back(word);
  }
  return words;
}

Values KernelBuilder::quartersOf(ArrayRef<Value> words) {
  Values numbers;
  for (Value word : words)
    for (int64_t byte = 0; byte < 4; ++byte) {
      Value top = shiftLeft(word, 24 - 8 * byte), number = arith::ShRSIOp::create(b, top, integer(24, top.getType()));
      numbers.push_back(arith::SIToFPOp::create(b, element, number));
    }
  return numbers;
}

Values KernelBuilder::halvesOf(ArrayRef<Value> pairs) {
  Values numbers;
  for (Value pair : pairs) {
    numbers.push_back(bits(shiftLeft(pair, 16), element));
    numbers.push_back(bits(bitAnd(pair, static_cast<int32_t>(0xffff0000u)), element));
  }
  return numbers;
}

Value KernelBuilder::aligned(const View &rows) {
  if (bytesOf(rows.element) < 4) // their rows have multiples of eight features
    return boolean(true);
  Value address = LLVM::PtrToIntOp::create(b, i64, rows.data);
  return equal(bitAnd(bitOr(address, mul(rows.stride, bytesOf(rows.element))), 15), 0);
}

void KernelBuilder::vectorized(ArrayRef<BufferIndex> buffers, int64_t width, const std::function<void(int64_t)> &body) {
  vectorized(llvm::map_to_vector(buffers, [&](BufferIndex i) { return rowsOf(i); }), width, body);
}
void KernelBuilder::vectorized(ArrayRef<View> rows, int64_t width, const std::function<void(int64_t)> &body) {
  if (width % 4)
    return body(1);
  Value all = boolean(true);
  for (const View &ofBuffer : rows)
    all = both(all, aligned(ofBuffer));
  when(all, [&] { body(4); }, [&] { body(1); });
}

Values KernelBuilder::overSpan(ArrayRef<View> data, Value from, Value to, ValueRange state,
                               const std::function<Values(Value, int64_t, Values)> &body) {
  Value all = boolean(true), count = max(sub(to, from), 0);
  for (const View &p : data) {
    Value address = LLVM::PtrToIntOp::create(b, i64, (p + from).data);
    all = both(all, equal(bitAnd(address, 4 * bytesOf(p.element) - 1), 0));
  }
  Value inFours = sub(count, rem(count, 4)),
        single = add(from, select(all, inFours, 0)); // the first element taken one at a time
  auto span = [&](Value begin, Value end, int64_t n, ValueRange s) {
    return loop(add(begin, mul(i64Of(thread()), n)), end, threads * n, s,
                [&](Value i, Values inner) { return body(i, n, std::move(inner)); });
  };
  Values vectors = span(from, single, 4, state);
  return span(single, to, 1, vectors);
}

//===--------------------------------------------------------------------------------------------------------===//
// Rows
//===--------------------------------------------------------------------------------------------------------===//

void KernelBuilder::acrossThreads(Value count, const std::function<void(Value)> &body) {
  loop(thread(), count, threads, body);
}

//===--------------------------------------------------------------------------------------------------------===//
// Random numbers
//===--------------------------------------------------------------------------------------------------------===//

std::array<Value, 4> KernelBuilder::philox(const DropoutKey &key, Value counter) {
  Value c0 = counter, c1 = key.position, c2 = key.sentence, c3 = key.head, k0 = key.key0, k1 = key.key1;
  for (int round = 0; round < 7; ++round) {
    Value p0 = mul(0xD2511F53, i64Of(c0)), p1 = mul(0xCD9E8D57, i64Of(c2));
    auto high = [&](Value product) { return truncated(shiftRight(product, 32)); };
    c0 = bitXor(bitXor(high(p1), c1), k0);
    c2 = bitXor(bitXor(high(p0), c3), k1);
    c1 = truncated(p1);
    c3 = truncated(p0);
    k0 = add(k0, static_cast<int32_t>(0x9E3779B9u));
    k1 = add(k1, static_cast<int32_t>(0xBB67AE85u));
  }
  return {c0, c1, c2, c3};
}

Value KernelBuilder::counterOf(Value element) {
  Value within = rem(element, 8);
  return add(mul(div(element, 64), 8), within);
}

// Selects by two bits of the element's number instead of comparing it for each word. A loop hoists the predicates, and
// there are only seven registers for them.
Value KernelBuilder::numberOf(const std::array<Value, 4> &words, Value element) {
  Value even = equal(bitAnd(element, 16), 0), first = equal(bitAnd(element, 32), 0);
  Value low = select(even, words[0], words[1]), high = select(even, words[2], words[3]);
  Value eight = i32Of(8), up = shiftLeft(bitXor(bitAnd(element, 8), eight), 1);
  return arith::ShLIOp::create(b, select(first, low, high), up);
}
Value KernelBuilder::numberOf(const std::array<Value, 4> &words, int64_t element) {
  Value word = words[element / 16];
  return element % 16 < 8 ? shiftLeft(word, 16) : word;
}

Value KernelBuilder::keeps(Value number, double rate) {
  return notLess(number, i32Of(static_cast<int32_t>(xfc_threshold(rate) << 16)));
}
Value KernelBuilder::keepFactor(Value number, double rate) {
  Value factor = scalar(1 / (1 - rate));
  return select(keeps(number, rate), factor, 0);
}

CodeBuilder::DropoutKey KernelBuilder::dropoutKeyOf(Value op, Value row) {
  auto number = [&](size_t list, Value i) { return loadIndex(numbers(rows(), list) + i); };
  Value sequence = number(offsetof(xfc_rows, sequence_of), row),
        sentence = number(offsetof(xfc_rows, sentences), sequence),
        position = number(offsetof(xfc_rows, positions), row);
  return dropoutKey(op, position, sentence, 0);
}

//===--------------------------------------------------------------------------------------------------------===//
// Inline PTX
//===--------------------------------------------------------------------------------------------------------===//

static const char *constraintOf(Type type) {
  if (isa<LLVM::LLVMPointerType>(type)) // to shared memory, too: for LLVM, its addresses have 64 bits
    return "l";
  if (type.isF32())
    return "f";
  if (type.isF64())
    return "d";
  switch (type.getIntOrFloatBitWidth()) {
  case 1:
    return "b";
  case 16:
    return "h";
  case 32:
    return "r";
  default:
    return "l";
  }
}

Values KernelBuilder::ptx(StringRef code, ValueRange operands, TypeRange results, bool pure, int64_t updated) {
  std::string constraints;
  auto add = [&](const std::string &constraint) { constraints += (constraints.empty() ? "" : ",") + constraint; };
  for (Type type : results)
    add(std::string("=") + constraintOf(type));
  for (int64_t i = 0; i < static_cast<int64_t>(operands.size()); ++i)
    add(i < updated ? std::to_string(i) : constraintOf(operands[i].getType()));
  if (!pure)
    add("~{memory}");
  SmallVector<Type, 1> result;
  if (results.size() == 1)
    result.push_back(results.front());
  else if (!results.empty())
    result.push_back(LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(results)));
  auto assembly = LLVM::InlineAsmOp::create(
      b, result, operands, code, constraints, /*has_side_effects=*/!pure, /*is_align_stack=*/false,
      LLVM::TailCallKind::None, LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
  if (results.size() <= 1)
    return Values(assembly->getResults());
  Values values;
  for (int64_t i = 0; i < static_cast<int64_t>(results.size()); ++i)
    values.push_back(LLVM::ExtractValueOp::create(b, assembly.getRes(), i));
  return values;
}

} // namespace xfc::gpu
