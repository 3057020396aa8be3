// Builds the kernel code that is the same for every target.
#include "CodeBuilder.h"
#include "Dialect/Values.h"
#include "Dialect/XFC.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace xfc {

CodeBuilder::CodeBuilder(ModuleOp module, Type element, unsigned addressSpace, bool constantCalls)
    : element(element), b(module.getLoc(), module.getContext()), module(module), constantCalls(constantCalls) {
  ptr = LLVM::LLVMPointerType::get(module.getContext(), addressSpace);
  i64 = b.getI64Type();
  i32 = b.getI32Type();
  i1 = b.getI1Type();
}

Type BufferIndex::elementOf(Value buffer) {
  return TypeSwitch<Type, Type>(buffer.getType())
      .Case<RowsType, PairsType, RankedTensorType>([](auto type) { return type.getElementType(); })
      .Default([](Type type) { return type; });
}

View View::operator+(Value elements) const {
  View result = *this;
  result.data = LLVM::GEPOp::create(k->b, data.getType(), element, data, ArrayRef<LLVM::GEPArg>{elements},
                                    LLVM::GEPNoWrapFlags::inbounds);
  return result;
}
View View::operator+(int64_t elements) const {
  View result = *this;
  if (elements)
    result.data =
        LLVM::GEPOp::create(k->b, data.getType(), element, data, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(elements)},
                            LLVM::GEPNoWrapFlags::inbounds);
  return result;
}
View View::row(Value i) const { return *this + k->mul(i, stride); }
View View::row(int64_t i) const {
  return stride.number ? *this + i * static_cast<int64_t>(*stride.number) : *this + k->mul(stride, i);
}

Type withElements(Type type, Type element) {
  auto vector = dyn_cast<VectorType>(type);
  return vector ? Type(vector.clone(element)) : element;
}

VectorType CodeBuilder::vectorType(int64_t n, Type of) const { return VectorType::get({n}, of ? of : element); }

//===--------------------------------------------------------------------------------------------------------===//
// The call
//===--------------------------------------------------------------------------------------------------------===//

Value CodeBuilder::field(Value record, size_t offset, Type type) {
  Value p = LLVM::GEPOp::create(b, record.getType(), b.getI8Type(), record,
                                ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)}, LLVM::GEPNoWrapFlags::inbounds);
  auto load = LLVM::LoadOp::create(b, type, p);
  load.setInvariant(constantCalls);
  return load;
}

Value CodeBuilder::rows() { return field(call, offsetof(xfc_call, rows), ptr); }
Value CodeBuilder::keyRows() { return field(call, offsetof(xfc_call, key_rows), ptr); }
Value CodeBuilder::keys() { return field(call, offsetof(xfc_call, keys), ptr); }
Value CodeBuilder::shape() { return field(call, offsetof(xfc_call, shape), ptr); }
View CodeBuilder::buffer(BufferIndex i) {
  return at(field(field(call, offsetof(xfc_call, buffers), ptr), i * sizeof(void *), ptr), i.element());
}
View CodeBuilder::rowsOf(BufferIndex i) {
  View result = buffer(i);
  result.stride = stride(i);
  return result;
}
View CodeBuilder::rowOf(BufferIndex i, Value row) {
  Value first = mul(row, stride(i));
  return buffer(i) + first;
}
Value CodeBuilder::stride(BufferIndex i) { return field(field(call, offsetof(xfc_call, strides), ptr), i * 8, i64); }
View CodeBuilder::bufferAt(BufferIndex first, Value i) {
  Value number = add(i, static_cast<int64_t>(first));
  auto load = LLVM::LoadOp::create(b, ptr, (at(field(call, offsetof(xfc_call, buffers), ptr), ptr) + number).data);
  load.setInvariant(constantCalls);
  return at(load, first.element());
}
Value CodeBuilder::inTable(size_t table, size_t bytes, Value i, size_t offset) {
  const View records = at(field(call, table, ptr), b.getI8Type());
  Value before = mul(i, static_cast<int64_t>(bytes));
  return field((records + before).data, offset, i64);
}
Value CodeBuilder::training() {
  Value flag = field(shape(), offsetof(xfc_shape, training), i32);
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, flag, i32Of(0));
}

Value CodeBuilder::keptFactor(double rate) {
  Value factor = scalar(1 / (1 - rate));
  return select(training(), factor, 1);
}

//===--------------------------------------------------------------------------------------------------------===//
// Integers
//===--------------------------------------------------------------------------------------------------------===//

Value CodeBuilder::index(const Term &value) { return value.number ? constant(*value.number, i64) : value.value; }
Value CodeBuilder::integer(int64_t value, Type type) {
  return arith::ConstantOp::create(b, b.getIntegerAttr(type, value));
}
Value CodeBuilder::i32Of(int32_t value) { return arith::ConstantOp::create(b, b.getI32IntegerAttr(value)); }
Value CodeBuilder::boolean(bool value) { return arith::ConstantOp::create(b, b.getBoolAttr(value)); }

template <size_t n> std::array<Value, n> CodeBuilder::alike(const Term *const (&terms)[n]) {
  Type type = i64;
  for (const Term *term : terms)
    if (!term->number && !isa<VectorType>(type))
      type = term->value.getType();
  std::array<Value, n> values;
  for (size_t i = 0; i < n; ++i) {
    values[i] = terms[i]->number ? constant(*terms[i]->number, type) : terms[i]->value;
    if (isa<VectorType>(type) && !isa<VectorType>(values[i].getType()))
      values[i] = vector::BroadcastOp::create(b, type, values[i]);
  }
  return values;
}

template <typename Op, typename... Leading> Value CodeBuilder::of(const Term &x, const Term &y, Leading... leading) {
  auto [left, right] = alike({&x, &y});
  return Op::create(b, leading..., left, right);
}

Value CodeBuilder::add(const Term &x, const Term &y) { return of<arith::AddIOp>(x, y); }
Value CodeBuilder::sub(const Term &x, const Term &y) { return of<arith::SubIOp>(x, y); }
Value CodeBuilder::mul(const Term &x, const Term &y) { return of<arith::MulIOp>(x, y); }
Value CodeBuilder::div(Value x, int64_t y) { return div(x, integer(y, x.getType())); }
Value CodeBuilder::div(Value x, Value y) { return arith::DivUIOp::create(b, x, y); }
Value CodeBuilder::rem(Value x, int64_t y) { return arith::RemUIOp::create(b, x, integer(y, x.getType())); }
Value CodeBuilder::min(const Term &x, const Term &y) { return of<arith::MinSIOp>(x, y); }
Value CodeBuilder::max(const Term &x, const Term &y) { return of<arith::MaxSIOp>(x, y); }
Value CodeBuilder::equal(const Term &x, const Term &y) { return of<arith::CmpIOp>(x, y, arith::CmpIPredicate::eq); }
Value CodeBuilder::less(const Term &x, const Term &y) { return of<arith::CmpIOp>(x, y, arith::CmpIPredicate::slt); }
Value CodeBuilder::notLess(Value x, Value y) { return arith::CmpIOp::create(b, arith::CmpIPredicate::uge, x, y); }
Value CodeBuilder::within(Value i, const Term &count) {
  Value below = less(i, count);
  return both(less(-1, i), below);
}
Value CodeBuilder::both(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
Value CodeBuilder::either(Value x, Value y) { return arith::OrIOp::create(b, x, y); }
Value CodeBuilder::truncated(Value x) { return arith::TruncIOp::create(b, i32, x); }
Value CodeBuilder::i64Of(Value x) { return x.getType() == i64 ? x : arith::ExtUIOp::create(b, i64, x).getResult(); }
Value CodeBuilder::select(Value condition, const Term &x, const Term &y) {
  auto [then, otherwise] = alike({&x, &y});
  if (auto mask = dyn_cast<VectorType>(condition.getType()); mask && !isa<VectorType>(then.getType())) {
    auto type = mask.clone(then.getType());
    then = vector::BroadcastOp::create(b, type, then);
    otherwise = vector::BroadcastOp::create(b, type, otherwise);
  }
  return arith::SelectOp::create(b, condition, then, otherwise);
}

//===--------------------------------------------------------------------------------------------------------===//
// Floats
//===--------------------------------------------------------------------------------------------------------===//

Value CodeBuilder::constant(double value, Type like) {
  auto vector = dyn_cast<VectorType>(like);
  Type type = getElementTypeOrSelf(like);
  TypedAttr number = isa<FloatType>(type) ? TypedAttr(b.getFloatAttr(type, value))
                                          : TypedAttr(b.getIntegerAttr(type, static_cast<int64_t>(value)));
  if (vector)
    return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, cast<Attribute>(number)));
  return arith::ConstantOp::create(b, number);
}

Value CodeBuilder::addf(const Term &x, const Term &y) { return of<arith::AddFOp>(x, y); }
Value CodeBuilder::subf(const Term &x, const Term &y) { return of<arith::SubFOp>(x, y); }
Value CodeBuilder::mulf(const Term &x, const Term &y) { return of<arith::MulFOp>(x, y); }
Value CodeBuilder::divf(const Term &x, const Term &y) { return of<arith::DivFOp>(x, y); }
Value CodeBuilder::fma(const Term &x, const Term &y, const Term &z) {
  auto [left, right, addend] = alike({&x, &y, &z});
  if (isa<VectorType>(left.getType()))
    return vector::FMAOp::create(b, left, right, addend);
  return math::FmaOp::create(b, left, right, addend);
}
Value CodeBuilder::lessf(const Term &x, const Term &y) { return of<arith::CmpFOp>(x, y, arith::CmpFPredicate::OLT); }
Value CodeBuilder::maxf(Value x, Value y) { return select(lessf(y, x), x, y); }
Value CodeBuilder::minf(Value x, Value y) { return select(lessf(x, y), x, y); }
Value CodeBuilder::sqrt(Value x) { return math::SqrtOp::create(b, x); }
Value CodeBuilder::log(Value x) { return math::LogOp::create(b, x); }
Value CodeBuilder::f64Of(Value x) {
  Type to = withElements(x.getType(), b.getF64Type());
  return x.getType() == to ? x : arith::ExtFOp::create(b, to, x).getResult();
}
Value CodeBuilder::elementOf(Value x) {
  Type to = withElements(x.getType(), element);
  return x.getType() == to ? x : arith::TruncFOp::create(b, to, x).getResult();
}
Value CodeBuilder::f64OfInteger(Value x) { return arith::SIToFPOp::create(b, b.getF64Type(), x); }

// sign(x) (1 - 2 / (exp(2|x|) + 1)); near 0, where the subtraction would cancel, the Taylor series.
Value CodeBuilder::tanh(Value x) {
  Value size = maxf(x, subf(0, x)), square = mulf(x, x);
  Value large = subf(1, divf(2, addf(exp(addf(size, size)), 1))), negated = subf(0, large);
  large = select(lessf(x, 0), negated, large);
  Value series = fma(square, fma(square, 2.0 / 15, -1.0 / 3), 1), small = mulf(x, series);
  return select(lessf(size, 0.1), small, large);
}

// Abramowitz and Stegun 7.1.26, absolute error 1.5e-7.
Value CodeBuilder::erf(Value x) {
  Value size = maxf(x, subf(0, x)), t = divf(1, fma(0.3275911, size, 1));
  Value p = constant(1.061405429, x);
  for (double coefficient : {-1.453152027, 1.421413741, -0.284496736, 0.254829592})
    p = fma(p, t, coefficient);
  Value gauss = exp(subf(0, mulf(x, x)));
  Value result = subf(1, mulf(mulf(p, t), gauss)), negated = subf(0, result);
  return select(lessf(x, 0), negated, result);
}

//===--------------------------------------------------------------------------------------------------------===//
// Memory
//===--------------------------------------------------------------------------------------------------------===//

Value CodeBuilder::widened(Value v, Type stored) {
  Type to = computedType(stored);
  if (stored == to)
    return v;
  Type type = withElements(v.getType(), to);
  return stored.isFloat() ? arith::ExtFOp::create(b, type, v).getResult() : arith::SIToFPOp::create(b, type, v);
}
Value CodeBuilder::widenedByBits(Value v) {
  Type halves = withElements(v.getType(), b.getI16Type()), words = withElements(v.getType(), i32),
       floats = withElements(v.getType(), b.getF32Type());
  if (v.getType() != halves)
    v = arith::BitcastOp::create(b, halves, v);
  Value wide = arith::ExtUIOp::create(b, words, v), half = constant(16, words);
  return arith::BitcastOp::create(b, floats, arith::ShLIOp::create(b, wide, half));
}
Value CodeBuilder::loaded(Value v, const View &p) {
  v = widened(v, p.element);
  return p.scale ? mulf(v, p.scale) : v;
}
Value CodeBuilder::narrowed(Value v, Type stored) {
  Type type = getElementTypeOrSelf(v);
  if (!isa<FloatType>(type) || bytesOf(type) <= bytesOf(stored))
    return v;
  Type to = withElements(v.getType(), stored);
  if (stored.isFloat())
    return arith::TruncFOp::create(b, to, v);
  return arith::FPToSIOp::create(b, to, math::RoundEvenOp::create(b, v));
}
Value CodeBuilder::load(const View &p) {
  return loaded(LLVM::LoadOp::create(b, inMemory(p.element), p.data, bytesOf(p.element)), p);
}
void CodeBuilder::store(Value value, const View &p) {
  LLVM::StoreOp::create(b, narrowed(value, p.element), p.data, bytesOf(p.element));
}
void CodeBuilder::store(double number, const View &p) { store(constant(number, computedType(p.element)), p); }
void CodeBuilder::storeIfRead(Value number, Value result, Value row) {
  if (!result.use_empty())
    store(number, rowOf(result, row));
}
Value CodeBuilder::loadIndex(const View &p) {
  Value i = LLVM::LoadOp::create(b, p.element, p.data);
  return p.element == i64 ? i : arith::ExtSIOp::create(b, i64, i).getResult();
}

//===--------------------------------------------------------------------------------------------------------===//
// Control
//===--------------------------------------------------------------------------------------------------------===//

Values CodeBuilder::loop(const Term &from, const Term &to, int64_t step, ValueRange state,
                         const std::function<Values(Value, Values)> &body) {
  const Term each = step;
  auto [begin, end, by] = alike({&from, &to, &each});
  auto loop = scf::ForOp::create(b, begin, end, by, state);
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

void CodeBuilder::loop(const Term &from, const Term &to, int64_t step, const std::function<void(Value)> &body) {
  loop(from, to, step, {}, [&](Value i, const Values &) -> Values {
    body(i);
    return {};
  });
}

void CodeBuilder::when(Value condition, const std::function<void()> &then, const std::function<void()> &otherwise) {
  auto branch = scf::IfOp::create(b, TypeRange{}, condition, /*withElseRegion=*/static_cast<bool>(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  then();
  if (otherwise) {
    b.setInsertionPoint(branch.elseYield());
    otherwise();
  }
}

Values CodeBuilder::choose(Value condition, const std::function<Values()> &then,
                           const std::function<Values()> &otherwise) {
  OpBuilder::InsertionGuard guard(b);
  auto branch = scf::IfOp::create(
      b, condition,
      [&](OpBuilder &at, Location) {
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

//===--------------------------------------------------------------------------------------------------------===//
// Random numbers
//===--------------------------------------------------------------------------------------------------------===//

CodeBuilder::DropoutKey CodeBuilder::dropoutKey(Value op, Value position, Value sentence, const Term &headPlusOne) {
  Value s = shape();
  Value key0 = field(s, offsetof(xfc_shape, dropout_key), i32),
        key1 = field(s, offsetof(xfc_shape, dropout_key) + 4, i32);
  return {arith::XOrIOp::create(b, key0, truncated(op)), key1, truncated(position), truncated(sentence),
          truncated(index(headPlusOne))};
}

} // namespace xfc
