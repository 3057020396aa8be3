// Derives the identity, name and costs of a kernel from the op alone.
#include "Kernels.h"
#include "Dialect/Values.h"
#include "Plan/PlanDialect.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// Identity
//===--------------------------------------------------------------------------------------------------------===//

// A kernel serves any set of rows, except that the cache needs kernels of its own: its rows have no positions, since a
// key's position is its index in the list.
static void printType(llvm::raw_ostream &os, Type type, bool shapes) {
  if (auto rows = dyn_cast<RowsType>(type)) {
    os << (rows.getSet() == RowSet::cache ? "cached" : "rows");
    for (int64_t extent : rows.getShape())
      os << "x" << extent;
    os << rows.getElementType();
  } else if (auto pairs = dyn_cast<PairsType>(type)) {
    os << (pairs.getKeys() == RowSet::cache ? "cachedpairs" : "pairs") << pairs.getHeads() << pairs.getElementType();
  } else if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && !shapes) {
    os << "tensor" << tensor.getElementType();
  } else {
    os << type;
  }
}

static void printKey(llvm::raw_ostream &os, Operation *op, llvm::DenseMap<Value, int> &numbers) {
  auto kernel = dyn_cast<KernelOpInterface>(op); // null for the terminator of an epilogue
  ArrayRef<StringRef> atLaunch = kernel ? kernel.getLaunchAttributes() : ArrayRef<StringRef>();
  const bool shapes = !kernel || !kernel.isShapeless();
  os << op->getName() << "{";
  for (NamedAttribute attribute : op->getAttrs())
    if (!llvm::is_contained(atLaunch, attribute.getName().getValue()))
      os << attribute.getName() << "=" << attribute.getValue() << ",";
  os << "}(";
  for (Value operand : op->getOperands()) {
    if (auto known = numbers.find(operand); known != numbers.end())
      os << "%" << known->second << ":";
    printType(os, operand.getType(), shapes);
    os << ",";
  }
  os << ")->";
  for (Value result : op->getResults()) {
    printType(os, result.getType(), shapes);
    os << (result.use_empty() ? "-," : ",");
  }
  for (Region &region : op->getRegions())
    for (Block &block : region) {
      for (Value argument : block.getArguments())
        numbers.try_emplace(argument, numbers.size());
      for (Operation &nested : block) {
        os << ";";
        printKey(os, &nested, numbers);
        for (Value result : nested.getResults())
          numbers.try_emplace(result, numbers.size());
      }
    }
}

std::string kernelKey(Operation *op) {
  std::string key;
  llvm::raw_string_ostream os(key);
  llvm::DenseMap<Value, int> numbers;
  printKey(os, op, numbers);
  return key;
}

static std::string dims(Type type) {
  std::string text;
  auto append = [&](ArrayRef<int64_t> shape) {
    for (int64_t extent : shape)
      text += (text.empty() ? "" : "x") + std::to_string(extent);
  };
  if (auto rows = dyn_cast<RowsType>(type))
    append(rows.getShape());
  else if (auto tensor = dyn_cast<RankedTensorType>(type))
    append(tensor.getShape());
  else if (auto pairs = dyn_cast<PairsType>(type))
    append({pairs.getHeads()});
  return text;
}

// A product is named by the shape of its weight, which says more than that of its result.
static Type namingType(Operation *op) {
  auto product = dyn_cast<ProductOpInterface>(op);
  if (std::optional<unsigned> weight = product ? product.getWeightOperand() : std::nullopt)
    return op->getOperand(*weight).getType();
  return op->getNumResults() ? op->getResult(0).getType() : op->getOperand(0).getType();
}

std::string kernelName(Operation *op) {
  auto kernel = cast<KernelOpInterface>(op);
  std::string name = kernel.getKernelName();
  if (!kernel.isShapeless())
    if (std::string text = dims(namingType(op)); !text.empty())
      name += "_" + text;
  name += kernel.getKernelSuffix();
  if (auto product = dyn_cast<ProductOpInterface>(op); product && product.getCompute())
    name += "_" + stringifyComputeType(*product.getCompute()).str();
  for (Region &region : op->getRegions())
    for (auto fused : region.getOps<KernelOpInterface>())
      name += "_" + fused.getKernelName();
  return name;
}

bool isDecodingStep(Operation *op) {
  if (auto kernel = op->getParentOfType<KernelOp>())
    return kernel.getDecoding();
  return llvm::any_of(op->getParentOfType<FunctionOpInterface>().getArgumentTypes(), [](Type type) {
    auto rows = dyn_cast<RowsType>(type);
    return rows && rows.getSet() == RowSet::cache;
  });
}

std::optional<int64_t> dropoutId(Operation *op) {
  std::optional<int64_t> id = cast<KernelOpInterface>(op).getDropoutId();
  for (Region &region : op->getRegions())
    for (auto fused : region.getOps<KernelOpInterface>())
      if (std::optional<int64_t> own = fused.getDropoutId()) {
        assert(!id && "an op draws the numbers of one dropout; the verifier of epilogues sees to it");
        id = own;
      }
  return id;
}

//===--------------------------------------------------------------------------------------------------------===//
// Sizes
//===--------------------------------------------------------------------------------------------------------===//

Size sizeOf(Type type) {
  Size size;
  if (auto rows = dyn_cast<RowsType>(type))
    size.rows[static_cast<int>(rows.getSet())] = rows.getFeatures() * elementBytes(type);
  else if (auto pairs = dyn_cast<PairsType>(type))
    size.pairs[pairs.getStructure()] = pairs.getHeads() * elementBytes(type);
  else if (auto tensor = dyn_cast<RankedTensorType>(type))
    size.constant = tensor.getNumElements() * elementBytes(type);
  return size;
}

static void add(Size &sum, const Size &size) {
  sum.constant += size.constant;
  for (int i = 0; i < XFC_ROW_SETS; ++i) {
    sum.rows[i] += size.rows[i];
    sum.sequences[i] += size.sequences[i];
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    sum.pairs[i] += size.pairs[i];
}

// An operand that the op always updates in place counts for the rows that are written to it, and is not read.
Size trafficOf(Operation *op) {
  Size size;
  auto kernel = dyn_cast<KernelOpInterface>(op);
  const bool inPlace = kernel && kernel.isAlwaysInPlace();
  llvm::SmallDenseSet<int64_t> replaced;
  for (unsigned i = 0; inPlace && i < op->getNumResults(); ++i)
    replaced.insert(kernel.getInPlaceOperand(i));
  auto product = dyn_cast<ProductOpInterface>(op);
  std::optional<unsigned> weight = product ? product.getWeightOperand() : std::nullopt;
  for (OpOperand &operand : op->getOpOperands()) {
    if (replaced.contains(operand.getOperandNumber()))
      continue;
    Size read = sizeOf(operand.get().getType());
    // A weight is packed in its product's compute type.
    if (weight == operand.getOperandNumber() && product.getCompute())
      read.constant = bytesOfWeight(read.constant, *product.getCompute());
    add(size, read);
  }
  for (OpResult result : op->getResults()) {
    if (result.use_empty())
      continue;
    auto rows = dyn_cast<RowsType>(result.getType());
    const bool isPart = inPlace && rows && kernel.getInPlaceOperand(result.getResultNumber()) >= 0;
    add(size, sizeOf(isPart ? RowsType::get(op->getContext(), kernel.getLaunchDomain().rows, rows.getShape(),
                                            rows.getElementType())
                            : result.getType()));
  }
  return size;
}

Size flopsOf(Operation *op) {
  Size flops;
  auto kernel = cast<KernelOpInterface>(op);
  if (std::optional<int64_t> each = kernel.getFlops()) {
    const LaunchDomain domain = kernel.getLaunchDomain();
    (domain.structure ? flops.pairs[*domain.structure] : flops.rows[static_cast<int>(domain.rows)]) = *each;
    return flops;
  }
  for (Value result : op->getResults()) {
    Size size = sizeOf(result.getType());
    int64_t bytes = elementBytes(result.getType());
    flops.constant += size.constant / bytes;
    for (int i = 0; i < XFC_ROW_SETS; ++i)
      flops.rows[i] += size.rows[i] / bytes;
    for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
      flops.pairs[i] += size.pairs[i] / bytes;
  }
  return flops;
}

} // namespace xfc
