// Checks that several verifiers share, and the default implementations of interface methods.
#include "Support.h"
#include "Values.h"

using namespace mlir;

namespace xfc {

LogicalResult verifyOneElementType(Operation *op) {
  Type element;
  auto agrees = [&](Type type) {
    Type own = elementOf(type);
    if (!own || !(own.isFloat() || own.isInteger(8)))
      return true;
    own = computedType(own);
    element = element ? element : own;
    return own == element;
  };
  for (Type type :
       llvm::concat<const Type>(SmallVector<Type>(op->getOperandTypes()), SmallVector<Type>(op->getResultTypes())))
    if (!agrees(type))
      return op->emitOpError("operands and results must have the same element type, found ")
             << element << " and " << type;
  return success();
}

int64_t bytesOfWeight(int64_t bytes, ComputeType type) {
  switch (type) {
  case ComputeType::bf16:
    return bytes / 2;
  case ComputeType::int8:
    return bytes / 4;
  case ComputeType::int4: // half a byte an element, and a bf16 a group
    return bytes / 8 + bytes / 4 / int4Group * 2;
  }
  llvm_unreachable("unknown type");
}

LogicalResult verifyComputeType(Operation *op) {
  auto product = cast<ProductOpInterface>(op);
  std::optional<ComputeType> type = product.getCompute();
  if (!type)
    return success();
  if (!product.computesIn(*type))
    return op->emitOpError("is not defined in ") << stringifyComputeType(*type) << ", which has no gradient";
  Type element = cast<RowsType>(op->getOperand(0).getType()).computed().getElementType();
  if (!element.isF32())
    return op->emitOpError("in ") << stringifyComputeType(*type) << " takes f32 operands, found " << element;
  return success();
}

LaunchDomain launchDomainOf(Operation *op) {
  SmallVector<Type> types(op->getOperandTypes());
  types.append(op->result_type_begin(), op->result_type_end());
  for (Type type : types)
    if (auto pairs = dyn_cast<PairsType>(type))
      return {pairs.getQueries(), pairs.getKeys(), pairs.getStructure()};
  for (Type type : types)
    if (auto rows = dyn_cast<RowsType>(type))
      return {rows.getSet(), rows.getSet(), std::nullopt};
  return {RowSet::source, RowSet::source, std::nullopt};
}

std::optional<int64_t> flopsOfProduct(Operation *op) {
  auto product = dyn_cast<ProductOpInterface>(op);
  std::optional<unsigned> weight = product ? product.getWeightOperand() : std::nullopt;
  if (!weight)
    return std::nullopt;
  return 2 * cast<RankedTensorType>(op->getOperand(*weight).getType()).getNumElements();
}

int64_t extentOf(ValueRange values) {
  int64_t extent = 0;
  for (Type type : values.getTypes())
    extent += isa<RowsType>(type) ? cast<RowsType>(type).getFeatures() : cast<RankedTensorType>(type).getNumElements();
  return extent;
}

} // namespace xfc
