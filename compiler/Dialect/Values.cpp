// What a program may compute with: the only place that says which element types are known.
#include "Values.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "plan/Optimizers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace xfc {

std::optional<DType> dtypeOf(Type element) {
  for (const ElementType &known : elementTypes)
    if (element == elementType(element.getContext(), known.type))
      return known.type;
  return std::nullopt;
}

Type elementType(MLIRContext *context, DType type) {
  switch (type) {
  case DType::F32:
    return Float32Type::get(context);
  case DType::F64:
    return Float64Type::get(context);
  case DType::I32:
    return IntegerType::get(context, 32);
  case DType::BF16:
    return BFloat16Type::get(context);
  case DType::I8:
    return IntegerType::get(context, 8);
  }
  llvm_unreachable("no element type");
}

Type computedType(Type element) {
  const bool narrow = element.isInteger(8) || (isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32);
  return narrow ? Float32Type::get(element.getContext()) : element;
}

Type elementOf(Type type) {
  if (auto rows = dyn_cast<RowsType>(type))
    return rows.getElementType();
  if (auto pairs = dyn_cast<PairsType>(type))
    return pairs.getElementType();
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? tensor.getElementType() : Type();
}

int64_t elementBytes(Type type) { return bytesOf(*dtypeOf(elementOf(type))); }

bool hasWholePieces(RowsType rows) { return rows.getFeatures() % 8 == 0; }

bool isKeysOrValues(StringRef name) { return name.ends_with(".k") || name.ends_with(".v"); }

static constexpr int64_t maxElements = int64_t(1) << 40;

static bool isNarrow(Type type) { return computedType(elementOf(type)) != elementOf(type); }

static LogicalResult unexpected(Operation *op, Type type) {
  return op->emitError() << "expected numbers of f32 or f64, or indices of i32, found " << type;
}

static LogicalResult verifyValue(Operation *op, Type type) {
  ArrayRef<int64_t> shape;
  if (auto rows = dyn_cast<RowsType>(type))
    shape = rows.getShape();
  else if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && tensor.hasStaticShape())
    shape = tensor.getShape();
  else if (!isa<PairsType>(type))
    return op->emitError() << "values of programs must be rows, pairs or static tensors, found " << type;
  int64_t elements = 1;
  for (int64_t extent : shape)
    if (extent < 1 || llvm::MulOverflow(elements, extent, elements) || elements > maxElements)
      return op->emitError() << "expected between 1 and " << maxElements << " elements, found " << type;
  if (!dtypeOf(elementOf(type)) || (isNarrow(type) && isa<PairsType>(type)) || (isNarrow(type) && isa<ParameterOp>(op)))
    return unexpected(op, type);
  return success();
}

// The runtime reads and writes the numbers of most arguments. Of states, and of keys and values, it only keeps the
// bytes from run to run, so these may be narrow.
static LogicalResult verifyArguments(FunctionOpInterface function) {
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    if (!isNarrow(type))
      continue;
    const auto number = static_cast<unsigned>(i);
    const auto role = function.getArgAttrOfType<StringAttr>(number, attr::role),
               name = function.getArgAttrOfType<StringAttr>(number, attr::name);
    const bool isKeys = name && isKeysOrValues(name.getValue());
    const bool isKept =
        role && (isa<RowsType>(type) ? role == attr::state || (role == attr::input && isKeys)
                                     : elementOf(type).isBF16() && mayBeNarrow(std::string_view(role.getValue())));
    if (!isKept)
      return unexpected(function, type);
  }
  return success();
}

// Visits the type of each value inside the op, and of each parameter, with the op that makes the value.
static LogicalResult eachValue(Operation *op, llvm::function_ref<LogicalResult(Operation *, Type)> visit) {
  WalkResult walked = op->walk<WalkOrder::PreOrder>([&](Operation *maker) {
    SmallVector<Type> types(maker->getResultTypes());
    if (auto parameter = dyn_cast<ParameterOp>(maker))
      types.push_back(parameter.getType());
    for (Region &region : maker->getRegions())
      for (Block &block : region)
        llvm::append_range(types, block.getArgumentTypes());
    return WalkResult(success(llvm::all_of(types, [&](Type type) { return succeeded(visit(maker, type)); })));
  });
  return failure(walked.wasInterrupted());
}

LogicalResult verifyValues(Operation *op) {
  if (failed(eachValue(op, verifyValue)))
    return failure();
  return failure(
      op->walk([](FunctionOpInterface function) { return WalkResult(verifyArguments(function)); }).wasInterrupted());
}

FailureOr<DType> floatTypeOf(ModuleOp module) {
  std::optional<DType> known;
  if (failed(verifyValues(module)) || failed(eachValue(module, [&](Operation *op, Type type) -> LogicalResult {
        DType own = *dtypeOf(elementOf(type));
        // A tensor that an op makes may hold sums, which are taken in f64, and rows that it makes may be narrower.
        const bool made = !isa<FunctionOpInterface, ParameterOp>(op);
        if (own == DType::I32 || (made && isa<RankedTensorType>(type)))
          return success();
        own = *dtypeOf(computedType(elementOf(type)));
        known = known.value_or(own);
        if (own == *known)
          return success();
        return op->emitError() << "computes with " << type << " in a module of "
                               << elementType(module.getContext(), *known);
      })))
    return failure();
  return known.value_or(DType::F32);
}

} // namespace xfc
