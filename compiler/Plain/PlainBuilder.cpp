// Turns numbers into arith ops, Einstein notation into linalg.generic, and the call's pointers into memrefs.
#include "PlainBuilder.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// Numbers
//===--------------------------------------------------------------------------------------------------------===//

Value Number::as(PlainBuilder &builder, Type to) const {
  ImplicitLocOpBuilder &at = builder.b;
  if (isLiteral()) {
    if (isa<FloatType>(to))
      return arith::ConstantOp::create(at, at.getFloatAttr(to, literal));
    return arith::ConstantOp::create(at, at.getIntegerAttr(to, static_cast<int64_t>(literal)));
  }
  if (type() == to)
    return value;
  if (isa<FloatType>(to) && !isa<FloatType>(type()))
    return arith::SIToFPOp::create(at, to, as(builder, at.getI64Type()));
  if (isa<FloatType>(to))
    return to.getIntOrFloatBitWidth() > type().getIntOrFloatBitWidth()
               ? arith::ExtFOp::create(at, to, value).getResult()
               : arith::TruncFOp::create(at, to, value).getResult();
  if (type().isInteger() && to.isInteger())
    return to.getIntOrFloatBitWidth() > type().getIntOrFloatBitWidth()
               ? arith::ExtSIOp::create(at, to, value).getResult()
               : arith::TruncIOp::create(at, to, value).getResult();
  return arith::IndexCastOp::create(at, to, value);
}

namespace {

// Two numbers converted to one type.
struct Both {
  Both(const Number &x, const Number &y) : b(*(x.b ? x.b : y.b)) {
    Type type = x.isLiteral() ? y.type() : x.type();
    this->x = x.as(b, type);
    this->y = y.as(b, type);
  }
  bool isFloat() const { return isa<FloatType>(x.getType()); }
  template <typename FloatOp, typename IntegerOp> Number make() const {
    return {b, isFloat() ? FloatOp::create(b.b, x, y).getResult() : IntegerOp::create(b.b, x, y).getResult()};
  }
  Number compare(arith::CmpFPredicate floats, arith::CmpIPredicate integers) const {
    return {b, isFloat() ? arith::CmpFOp::create(b.b, floats, x, y).getResult()
                         : arith::CmpIOp::create(b.b, integers, x, y).getResult()};
  }
  PlainBuilder &b;
  Value x, y;
};

template <typename Op> Number unary(const Number &x) { return {*x.b, Op::create(x.b->b, x.value)}; }

} // namespace

Number operator+(const Number &x, const Number &y) { return Both(x, y).make<arith::AddFOp, arith::AddIOp>(); }
Number operator-(const Number &x, const Number &y) { return Both(x, y).make<arith::SubFOp, arith::SubIOp>(); }
Number operator*(const Number &x, const Number &y) { return Both(x, y).make<arith::MulFOp, arith::MulIOp>(); }
Number operator/(const Number &x, const Number &y) { return Both(x, y).make<arith::DivFOp, arith::DivUIOp>(); }
Number operator%(const Number &x, const Number &y) { return Both(x, y).make<arith::RemFOp, arith::RemUIOp>(); }
Number operator<(const Number &x, const Number &y) {
  return Both(x, y).compare(arith::CmpFPredicate::OLT, arith::CmpIPredicate::slt);
}
Number operator>(const Number &x, const Number &y) {
  return Both(x, y).compare(arith::CmpFPredicate::OGT, arith::CmpIPredicate::sgt);
}
Number operator==(const Number &x, const Number &y) {
  return Both(x, y).compare(arith::CmpFPredicate::OEQ, arith::CmpIPredicate::eq);
}
Number operator&(const Number &x, const Number &y) { return {*x.b, arith::AndIOp::create(x.b->b, x.value, y.value)}; }
Number min(const Number &x, const Number &y) { return Both(x, y).make<arith::MinimumFOp, arith::MinSIOp>(); }
Number max(const Number &x, const Number &y) { return Both(x, y).make<arith::MaximumFOp, arith::MaxSIOp>(); }
Number select(const Number &condition, const Number &x, const Number &y) {
  Both both(x, y);
  return {both.b, arith::SelectOp::create(both.b.b, condition.value, both.x, both.y)};
}
Number exp(const Number &x) { return unary<math::ExpOp>(x); }
Number log(const Number &x) { return unary<math::LogOp>(x); }
Number sqrt(const Number &x) { return unary<math::SqrtOp>(x); }
Number tanh(const Number &x) { return unary<math::TanhOp>(x); }
Number erf(const Number &x) { return unary<math::ErfOp>(x); }

//===--------------------------------------------------------------------------------------------------------===//
// The function and its call
//===--------------------------------------------------------------------------------------------------------===//

static Type elementOf(Type type) {
  if (auto rows = dyn_cast<RowsType>(type))
    return rows.getElementType();
  if (auto pairs = dyn_cast<PairsType>(type))
    return pairs.getElementType();
  return cast<RankedTensorType>(type).getElementType();
}

PlainBuilder::PlainBuilder(ModuleOp module, StringRef name, Operation *op) : b(op->getLoc(), op->getContext()), op(op) {
  ptr = LLVM::LLVMPointerType::get(op->getContext());
  i32 = b.getI32Type();
  i64 = b.getI64Type();
  index = b.getIndexType();
  for (unsigned i = op->getNumOperands() + op->getNumResults(); i-- > 0;)
    if (Type type = elementOf(typeOf(i)); isa<FloatType>(type))
      element = type;
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, name, b.getFunctionType({ptr, i64, i64, ptr}, {}));
  entry = function.addEntryBlock();
  call = entry->getArgument(0);
  b.setInsertionPointToStart(entry);
  b.setInsertionPoint(func::ReturnOp::create(b));
}

Type PlainBuilder::typeOf(unsigned buffer) const {
  const unsigned operands = op->getNumOperands();
  return buffer < operands ? op->getOperand(buffer).getType() : op->getResult(buffer - operands).getType();
}

Value PlainBuilder::first(llvm::function_ref<Value()> make) {
  OpBuilder::InsertionGuard guard(b);
  if (prologue)
    b.setInsertionPointAfter(prologue);
  else
    b.setInsertionPointToStart(entry);
  Value value = make();
  prologue = value.getDefiningOp();
  return value;
}

Value PlainBuilder::field(Value record, size_t offset, Type type) {
  Value &known = fields[{record.getAsOpaquePointer(), offset}];
  if (!known)
    known = first([&]() -> Value {
      Value address =
          LLVM::GEPOp::create(b, ptr, b.getI8Type(), record, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)},
                              LLVM::GEPNoWrapFlags::inbounds);
      return LLVM::LoadOp::create(b, type, address);
    });
  return known;
}

Number PlainBuilder::count(Value record, size_t offset) {
  return {*this, arith::IndexCastOp::create(b, index, field(record, offset, i64))};
}

Value PlainBuilder::memref(Value pointer, MemRefType type, ArrayRef<Number> sizes, Value stride) {
  LLVMTypeConverter converter(b.getContext());
  auto descriptor = MemRefDescriptor::poison(b, b.getLoc(), converter.convertType(type));
  descriptor.setAllocatedPtr(b, b.getLoc(), pointer);
  descriptor.setAlignedPtr(b, b.getLoc(), pointer);
  descriptor.setConstantOffset(b, b.getLoc(), 0);
  auto [strides, offset] = type.getStridesAndOffset();
  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (type.isDynamicDim(d))
      descriptor.setSize(b, b.getLoc(), d, sizes[d].as(*this, i64));
    else
      descriptor.setConstantSize(b, b.getLoc(), d, type.getDimSize(d));
    if (ShapedType::isDynamic(strides[d]))
      descriptor.setStride(b, b.getLoc(), d, stride);
    else
      descriptor.setConstantStride(b, b.getLoc(), d, strides[d]);
  }
  return UnrealizedConversionCastOp::create(b, type, Value(descriptor)).getResult(0);
}

Value PlainBuilder::array(Value pointer, const Number &count, Type type) {
  return memref(pointer, MemRefType::get({ShapedType::kDynamic}, type), count);
}

Value PlainBuilder::numbers(Value record, size_t offset, const Number &count) {
  return array(field(record, offset, ptr), count, i32);
}

Value PlainBuilder::rows(Of of) {
  if (of != Of::Cache)
    return field(call, of == Of::Rows ? offsetof(xfc_call, rows) : offsetof(xfc_call, key_rows), ptr);
  // The cache's rows are part of the shape itself, not behind a pointer.
  const int32_t offset = offsetof(xfc_shape, sets) + XFC_CACHE * sizeof(xfc_rows);
  Value shape = this->shape();
  return cache = cache ? cache : first([&]() -> Value {
           return LLVM::GEPOp::create(b, ptr, b.getI8Type(), shape, ArrayRef<LLVM::GEPArg>{offset});
         });
}

Value PlainBuilder::sentences() {
  const Number sequences = count(rows(), offsetof(xfc_rows, sequences));
  return numbers(rows(), offsetof(xfc_rows, sentences), sequences);
}

Value PlainBuilder::ofRows(Of of, size_t offset) {
  const Number count = rowCount(of);
  return numbers(rows(of), offset, count);
}

Value PlainBuilder::ofHypotheses(size_t offset) {
  const Number count = rowCount();
  return numbers(shape(), offset, count);
}

Number PlainBuilder::inTensor(size_t offset) { return count(field(call, offsetof(xfc_call, tensors), ptr), offset); }

//===--------------------------------------------------------------------------------------------------------===//
// Values
//===--------------------------------------------------------------------------------------------------------===//

Value PlainBuilder::result(unsigned i, Of of) {
  return op->getResult(i).use_empty() ? Value() : valueOf(op->getNumOperands() + i, of);
}

Value PlainBuilder::dense(unsigned buffer, const Number &count) {
  Value pointer = field(field(call, offsetof(xfc_call, buffers), ptr), buffer * sizeof(void *), ptr);
  return array(pointer, count, elementOf(typeOf(buffer)));
}

Value PlainBuilder::valueOf(unsigned buffer, Of of) {
  Type type = typeOf(buffer), element = elementOf(type);
  if (auto pairs = dyn_cast<PairsType>(type))
    return dense(buffer, count(keys(), offsetof(xfc_keys, pairs)) * pairs.getHeads());
  Value pointer = field(field(call, offsetof(xfc_call, buffers), ptr), buffer * sizeof(void *), ptr);
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    return memref(pointer, MemRefType::get(tensor.getShape(), element));
  SmallVector<int64_t> shape = {ShapedType::kDynamic}, strides = {ShapedType::kDynamic};
  if (auto rows = cast<RowsType>(type); !rows.getShape().empty()) {
    shape.push_back(rows.getFeatures());
    strides.push_back(1);
  }
  Value stride = field(field(call, offsetof(xfc_call, strides), ptr), buffer * sizeof(int64_t), i64);
  return memref(pointer, MemRefType::get(shape, element, StridedLayoutAttr::get(b.getContext(), 0, strides)),
                rowCount(of), stride);
}

Value PlainBuilder::slice(Value memref, ArrayRef<Cut> cuts) {
  if (!memref)
    return {};
  auto type = cast<MemRefType>(memref.getType());
  auto foldable = [&](const Number &n) -> OpFoldResult {
    return n.isLiteral() ? OpFoldResult(b.getIndexAttr(static_cast<int64_t>(n.literal)))
                         : OpFoldResult(n.as(*this, index));
  };
  SmallVector<OpFoldResult> offsets, sizes, strides(type.getRank(), b.getIndexAttr(1));
  SmallVector<int64_t> shape;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    Cut cut = d < static_cast<int64_t>(cuts.size()) ? cuts[d] : Cut::all();
    if (cut.isAll())
      cut.size = type.isDynamicDim(d) ? Number(*this, memref::DimOp::create(b, memref, d)) : Number(type.getDimSize(d));
    offsets.push_back(foldable(cut.offset));
    sizes.push_back(foldable(cut.size));
    if (!cut.dropped)
      shape.push_back(cut.size.isLiteral() ? static_cast<int64_t>(cut.size.literal) : ShapedType::kDynamic);
  }
  MemRefType part = memref::SubViewOp::inferRankReducedResultType(shape, type, offsets, sizes, strides);
  return memref::SubViewOp::create(b, part, memref, offsets, sizes, strides);
}

Number PlainBuilder::load(Value memref, ArrayRef<Number> indices) {
  SmallVector<Value> at;
  for (const Number &i : indices)
    at.push_back(i.as(*this, index));
  return {*this, memref::LoadOp::create(b, memref, at)};
}

void PlainBuilder::store(const Number &value, Value memref, ArrayRef<Number> indices) {
  if (!memref)
    return;
  SmallVector<Value> at;
  for (const Number &i : indices)
    at.push_back(i.as(*this, index));
  memref::StoreOp::create(b, value.as(*this, cast<MemRefType>(memref.getType()).getElementType()), memref, at);
}

void PlainBuilder::fill(Value memref, const Number &value) {
  if (memref)
    linalg::FillOp::create(b, value.as(*this, cast<MemRefType>(memref.getType()).getElementType()), memref);
}

//===--------------------------------------------------------------------------------------------------------===//
// Loops
//===--------------------------------------------------------------------------------------------------------===//

void PlainBuilder::forEach(const Number &count, llvm::function_ref<void(const Number &)> body) {
  Value step = Number(1).as(*this, index), end = count.as(*this, index), begin = Number(0).as(*this, index);
  auto loop = scf::ForOp::create(b, begin, end, step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(loop.getBody()->getTerminator());
  body({*this, loop.getInductionVar()});
}

void PlainBuilder::forEachHead(PairsType pairs, llvm::function_ref<void(const Head &)> body) {
  Number sequences = count(rows(), offsetof(xfc_rows, sequences));
  const Number bounds = sequences + 1;
  Value offsets = numbers(rows(), offsetof(xfc_rows, offsets), bounds);
  Value begin = numbers(keys(), offsetof(xfc_keys, begin), sequences),
        counts = numbers(keys(), offsetof(xfc_keys, count), sequences);
  Value pairOffsets = array(field(keys(), offsetof(xfc_keys, pair_offsets), ptr), bounds, i64);
  auto at = [&](Value numbers, const Number &i) { return Number(*this, load(numbers, {i}).as(*this, index)); };
  forEach(sequences, [&](const Number &s) {
    Number first = at(offsets, s), queries = at(offsets, s + 1) - first, listed = at(counts, s);
    Number block = at(pairOffsets, s) * pairs.getHeads();
    forEach(pairs.getHeads(), [&](const Number &h) {
      body({s, h, first, queries, at(begin, s), listed, block + h * queries * listed, *this});
    });
  });
}

Value PlainBuilder::Head::of(Value pairs) const {
  if (!pairs)
    return {};
  constexpr int64_t dynamic = ShapedType::kDynamic;
  auto type = MemRefType::get({dynamic, dynamic}, cast<MemRefType>(pairs.getType()).getElementType(),
                              StridedLayoutAttr::get(b.b.getContext(), dynamic, {dynamic, 1}));
  return memref::ReinterpretCastOp::create(b.b, type, pairs, OpFoldResult(element.value),
                                           ArrayRef<OpFoldResult>{rows.value, keys.value},
                                           ArrayRef<OpFoldResult>{keys.value, b.b.getIndexAttr(1)});
}

Value PlainBuilder::Head::rowsOf(Value values, int64_t heads) const {
  if (!values)
    return {};
  const int64_t width = cast<MemRefType>(values.getType()).getDimSize(1) / heads;
  return b.slice(values, {{firstRow, rows}, {head * width, width}});
}

Value PlainBuilder::Head::queries(Value numbers) const { return b.slice(numbers, {{firstRow, rows}}); }

Value PlainBuilder::Head::keyRows() const {
  // The total length of all lists is not recorded; the end of this one is enough.
  const Number end = firstKey + keys;
  Value lists = b.numbers(b.keys(), offsetof(xfc_keys, keys), end);
  return b.slice(lists, {{firstKey, keys}});
}

Value PlainBuilder::Head::limits() const {
  const Number count = b.rowCount();
  return queries(b.numbers(b.keys(), offsetof(xfc_keys, limit), count));
}

void PlainBuilder::generic(StringRef notation, ValueRange operands, Value result, Body body) {
  if (!result)
    return;
  auto [left, right] = notation.split("->");
  SmallVector<StringRef> parts;
  left.split(parts, ',', -1, /*KeepEmpty=*/!operands.empty());
  parts.push_back(right);
  std::string outer = std::exchange(letters, {});
  for (char letter = 'a'; letter <= 'z'; ++letter)
    if (notation.contains(letter))
      letters += letter;
  SmallVector<AffineMap> maps;
  for (StringRef part : parts) {
    SmallVector<AffineExpr> dims;
    for (char letter : part)
      dims.push_back(b.getAffineDimExpr(letters.find(letter)));
    maps.push_back(AffineMap::get(letters.size(), 0, dims, b.getContext()));
  }
  SmallVector<utils::IteratorType> iterators;
  for (char letter : letters)
    iterators.push_back(right.contains(letter) ? utils::IteratorType::parallel : utils::IteratorType::reduction);
  linalg::GenericOp::create(b, operands, result, maps, iterators,
                            [&](OpBuilder &nested, Location, ValueRange arguments) {
                              OpBuilder::InsertionGuard guard(b);
                              b.setInsertionPointToEnd(nested.getInsertionBlock());
                              SmallVector<Number> numbers;
                              for (Value argument : arguments)
                                numbers.push_back({*this, argument});
                              linalg::YieldOp::create(b, body(numbers).as(*this, arguments.back().getType()));
                            });
  letters = outer;
}

void PlainBuilder::elementwise(ValueRange operands, Value result, Body body) {
  if (!result)
    return;
  std::string dims = StringRef("ijkl").take_front(cast<MemRefType>(result.getType()).getRank()).str(), notation;
  for (size_t i = 0; i < operands.size(); ++i)
    notation += (i ? "," : "") + dims;
  generic(notation + "->" + dims, operands, result, body);
}

Number PlainBuilder::reduce(StringRef notation, ValueRange operands, const Number &initial, Body body) {
  auto type = MemRefType::get({}, initial.isLiteral() ? element : initial.type());
  Value sum = first([&]() -> Value { return memref::AllocaOp::create(b, type); });
  store(initial, sum);
  generic(notation, operands, sum, body);
  return load(sum);
}

Number PlainBuilder::loop(char letter) { return {*this, linalg::IndexOp::create(b, letters.find(letter))}; }

//===--------------------------------------------------------------------------------------------------------===//
// Random numbers
//===--------------------------------------------------------------------------------------------------------===//

Number PlainBuilder::dropout(const Number &x, double rate, const Number &sentence, const Number &position,
                             const Number &feature, const std::optional<Number> &head) {
  auto word = [&](uint32_t value) -> Value {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(value)));
  };
  auto mix = [&](Value x, Value y) -> Value { return arith::XOrIOp::create(b, x, y); };
  Value shape = this->shape();
  Value id = count(call, offsetof(xfc_call, dropout)).as(*this, i32),
        k0 = mix(field(shape, offsetof(xfc_shape, dropout_key), i32), id);
  Value k1 = field(shape, offsetof(xfc_shape, dropout_key) + sizeof(uint32_t), i32);
  const Number within = feature % 8;
  Value c0 = (feature / 64 * 8 + within).as(*this, i32), c1 = position.as(*this, i32), c2 = sentence.as(*this, i32);
  Value c3 = (head ? *head + 1 : Number(0)).as(*this, i32);
  for (int round = 0; round < 7; ++round) {
    auto p0 = arith::MulUIExtendedOp::create(b, word(0xD2511F53u), c0),
         p1 = arith::MulUIExtendedOp::create(b, word(0xCD9E8D57u), c2);
    c0 = mix(mix(p1.getHigh(), c1), k0);
    c2 = mix(mix(p0.getHigh(), c3), k1);
    c1 = p1.getLow();
    c3 = p0.getLow();
    k0 = arith::AddIOp::create(b, k0, word(0x9E3779B9u));
    k1 = arith::AddIOp::create(b, k1, word(0xBB67AE85u));
  }
  Number which = feature % 64 / 16;
  const Number upper = select(which < 3, {*this, c2}, {*this, c3}), lower = select(which < 1, {*this, c0}, {*this, c1});
  const Number own = select(which < 2, lower, upper);
  const Number moved(*this, arith::ShLIOp::create(b, own.value, word(16)));
  const Number random = select(feature % 16 < 8, moved, own); // the number is the upper half of a word
  Number kept(*this,
              arith::CmpIOp::create(b, arith::CmpIPredicate::uge, random.value, word(xfc_threshold(rate) << 16)));
  Number training(*this, field(shape, offsetof(xfc_shape, training), i32));
  const Number dropped = x * select(kept, {*this, Number(1 / (1 - rate)).as(*this, x.type())}, 0);
  return select(training == 0, x, dropped);
}

Number PlainBuilder::keptByDropout(const Number &x, double rate) {
  Number training(*this, field(shape(), offsetof(xfc_shape, training), i32));
  const Number scaled = x * Number(*this, Number(1 / (1 - rate)).as(*this, x.type()));
  return select(training == 0, x, scaled);
}

} // namespace xfc
