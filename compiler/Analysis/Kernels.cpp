// Kernel identity, names and costs, from the op alone.
#include "Kernels.h"
#include "Plan/PlanDialect.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// Identity
//===--------------------------------------------------------------------------------------------------------===//

static void printType(llvm::raw_ostream &os, Type type, bool shapes) {
  if (auto rows = dyn_cast<RowsType>(type)) {
    os << "rows";
    for (int64_t extent : rows.getShape())
      os << "x" << extent;
    os << rows.getElementType();
  } else if (auto pairs = dyn_cast<PairsType>(type)) {
    os << "pairs" << pairs.getHeads() << pairs.getElementType();
  } else if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && !shapes) {
    os << "tensor" << tensor.getElementType();
  } else {
    os << type;
  }
}

// Ops over parameters get their size at run time, so tensors of all shapes share a kernel.
static bool isShapeless(Operation *op) { return isa<AdamOp, SquareSumOp>(op); }

static void printKey(llvm::raw_ostream &os, Operation *op, llvm::DenseMap<Value, int> &numbers) {
  os << op->getName() << "{";
  for (NamedAttribute attribute : op->getAttrs())
    if (attribute.getName() != "id" && attribute.getName() != "padding" && attribute.getName() != "causal")
      os << attribute.getName() << "=" << attribute.getValue() << ",";
  os << "}(";
  for (Value operand : op->getOperands()) {
    if (auto known = numbers.find(operand); known != numbers.end())
      os << "%" << known->second << ":";
    printType(os, operand.getType(), !isShapeless(op));
    os << ",";
  }
  os << ")->";
  for (Value result : op->getResults()) {
    printType(os, result.getType(), !isShapeless(op));
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

static std::string plainName(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case([](ActivationOp activation) { return stringifyActivationKind(activation.getKind()).str(); })
      .Case([](ActivationGradOp grad) { return stringifyActivationKind(grad.getKind()).str() + "_grad"; })
      .Case([](DropoutOp dropout) { return dropout.getKept() ? "kept" : "dropout"; })
      .Default([](Operation *other) { return other->getName().stripDialect().str(); });
}

std::string kernelName(Operation *op) {
  std::string name = plainName(op);
  if (!isShapeless(op)) {
    Type type =
        isa<LinearOp, LinearInputGradOp, LinearCrossEntropyOp, LinearCrossEntropyWithGradOp, LinearCandidatesOp>(op)
            ? op->getOperand(1).getType()
        : op->getNumResults() ? op->getResult(0).getType()
                              : op->getOperand(0).getType();
    if (std::string text = dims(type); !text.empty())
      name += "_" + text;
  }
  if (auto grad = dyn_cast<LinearWeightGradOp>(op); grad && grad.getDbias())
    name += "_bias";
  if (auto product = dyn_cast<ProductOpInterface>(op); product && product.getCompute())
    name += "_" + stringifyComputeType(*product.getCompute()).str();
  for (Region &region : op->getRegions())
    for (Operation &nested : region.getOps())
      if (!isa<YieldOp>(nested))
        name += "_" + plainName(&nested);
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

std::vector<int64_t> dropoutIds(Operation *op) {
  std::vector<int64_t> ids;
  if (auto dropout = dyn_cast<DropoutOp>(op); dropout && !dropout.getKept())
    ids.push_back(dropout.getId());
  if (auto attention = dyn_cast<AttentionOp>(op); attention && attention.getRate().convertToDouble() > 0)
    ids.push_back(attention.getId());
  if (auto grad = dyn_cast<AttentionGradOp>(op); grad && grad.getRate().convertToDouble() > 0)
    ids.push_back(grad.getId());
  for (Region &region : op->getRegions())
    for (auto dropout : region.getOps<DropoutOp>())
      if (!dropout.getKept())
        ids.push_back(dropout.getId());
  return ids;
}

//===--------------------------------------------------------------------------------------------------------===//
// Sets and sizes
//===--------------------------------------------------------------------------------------------------------===//

static PairsType pairsOf(Operation *op) {
  for (Type type : op->getOperandTypes())
    if (auto pairs = dyn_cast<PairsType>(type))
      return pairs;
  for (Type type : op->getResultTypes())
    if (auto pairs = dyn_cast<PairsType>(type))
      return pairs;
  return {};
}

LaunchSets launchSets(Operation *op) {
  auto of = [](RowSet set) { return static_cast<int8_t>(set); };
  auto attention = [&](auto fused) {
    return LaunchSets{of(fused.getQ().getType().getSet()), of(fused.getK().getType().getSet()),
                      static_cast<int16_t>(fused.getStructure())};
  };
  if (auto fused = dyn_cast<AttentionOp>(op))
    return attention(fused);
  if (auto fused = dyn_cast<AttentionGradOp>(op))
    return attention(fused);
  if (PairsType pairs = pairsOf(op))
    return {of(pairs.getQueries()), of(pairs.getKeys()), static_cast<int16_t>(pairs.getStructure())};
  if (auto write = dyn_cast<CacheWriteOp>(op)) {
    int8_t set = of(write.getRows().getType().getSet());
    return {set, set, -1};
  }
  auto first = [&](TypeRange types) -> RowsType {
    for (Type type : types)
      if (auto rows = dyn_cast<RowsType>(type))
        return rows;
    return {};
  };
  RowsType rows = first(op->getOperandTypes());
  if (!rows)
    rows = first(op->getResultTypes());
  int8_t set = rows ? of(rows.getSet()) : 0;
  return {set, set, -1};
}

static Type elementOf(Type type) {
  if (auto rows = dyn_cast<RowsType>(type))
    return rows.getElementType();
  if (auto pairs = dyn_cast<PairsType>(type))
    return pairs.getElementType();
  return cast<RankedTensorType>(type).getElementType();
}

static int64_t elementBytes(Type type) { return type.getIntOrFloatBitWidth() / 8; }

Size sizeOf(Type type) {
  Size size;
  if (auto rows = dyn_cast<RowsType>(type))
    size.rows[static_cast<int>(rows.getSet())] = rows.getFeatures() * elementBytes(rows.getElementType());
  else if (auto pairs = dyn_cast<PairsType>(type))
    size.pairs[pairs.getStructure()] = pairs.getHeads() * elementBytes(pairs.getElementType());
  else if (auto tensor = dyn_cast<RankedTensorType>(type))
    size.constant = tensor.getNumElements() * elementBytes(tensor.getElementType());
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

Size trafficOf(Operation *op) {
  Size size;
  auto product = dyn_cast<ProductOpInterface>(op);
  for (OpOperand &operand : op->getOpOperands()) {
    Size read = sizeOf(operand.get().getType());
    // A weight is packed in the type it is multiplied in.
    if (product && product.getCompute() && operand.getOperandNumber() == 1)
      read.constant /= *product.getCompute() == ComputeType::bf16 ? 2 : 4;
    add(size, read);
  }
  for (Value result : op->getResults())
    if (!result.use_empty())
      add(size, sizeOf(result.getType()));
  return size;
}

Size flopsOf(Operation *op) {
  Size flops;
  LaunchSets sets = launchSets(op);
  auto matrix = [&](RankedTensorType weight) { flops.rows[sets.set] = 2 * weight.getNumElements(); };
  llvm::TypeSwitch<Operation *>(op)
      .Case<LinearOp, LinearInputGradOp, LinearCrossEntropyOp, LinearCrossEntropyWithGradOp, LinearCandidatesOp>(
          [&](auto linear) { matrix(linear.getWeight().getType()); })
      .Case([&](LinearWeightGradOp grad) { matrix(grad.getDweight().getType()); })
      // Scores and their use: two products a pair forward; backward computes scores again and has four more.
      .Case([&](AttentionOp attention) {
        flops.pairs[sets.keys] =
            2 * (attention.getK().getType().getFeatures() + attention.getV().getType().getFeatures());
      })
      .Case([&](AttentionGradOp grad) {
        flops.pairs[sets.keys] =
            2 * (3 * grad.getK().getType().getFeatures() + 2 * grad.getV().getType().getFeatures());
      })
      .Case([&](ScoresOp scores) { flops.pairs[sets.keys] = 2 * scores.getK().getType().getFeatures(); })
      .Case([&](CombineOp combine) { flops.pairs[sets.keys] = 2 * combine.getV().getType().getFeatures(); })
      .Case([&](CombineTransposedOp combine) { flops.pairs[sets.keys] = 2 * combine.getX().getType().getFeatures(); })
      // Everything else is bound by memory; one operation an element is near enough.
      .Default([&](Operation *other) {
        for (Value result : other->getResults()) {
          Size size = sizeOf(result.getType());
          int64_t bytes = elementBytes(elementOf(result.getType()));
          flops.constant += size.constant / bytes;
          for (int i = 0; i < XFC_ROW_SETS; ++i)
            flops.rows[i] += size.rows[i] / bytes;
          for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
            flops.pairs[i] += size.pairs[i] / bytes;
        }
      });
  return flops;
}

} // namespace xfc
