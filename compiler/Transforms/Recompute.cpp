// Recomputes values of the forward part where the backward part reads them, instead of keeping them.
#include "Analysis/BufferAssignment.h"
#include "Analysis/Kernels.h"
#include "Dialect/Values.h"
#include "Passes.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OwningOpRef.h"
#include "plan/Memory.h"
#include "plan/Programs.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_RECOMPUTE
#include "Transforms/Passes.h.inc"

namespace {

//===--------------------------------------------------------------------------------------------------------===//
// The forward and the backward part
//===--------------------------------------------------------------------------------------------------------===//

// The first op of the backward part, or null. It reads the gradient of the loss; everything before it is the forward
// part.
Operation *backwardOf(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attr::name);
        name && name.getValue() == names::lossScale)
      for (Operation &op : function.getBody().front())
        if (llvm::is_contained(op.getOperands(), argument))
          return &op;
  return nullptr;
}

bool isKernel(Operation *op) { return isa<KernelOpInterface>(op); }

bool takesMemory(Value value) { return isa<RowsType, PairsType>(value.getType()); }

// The value in whose memory `value` lies.
Value wholeOf(Value value) {
  while (auto split = value.getDefiningOp<SplitOp>())
    value = split.getX();
  return value;
}

// Sizes are compared for a batch of the size that `xfc inspect` shows.
int64_t evaluated(const Size &size) {
  static const Counts counts = batchCounts(4096, 32);
  return evaluate(size, counts);
}

int64_t bytesOf(Value value) { return evaluated(sizeOf(value.getType())); }

//===--------------------------------------------------------------------------------------------------------===//
// Memory
//===--------------------------------------------------------------------------------------------------------===//

// The peak of live bytes, as Schedule will place them: rows and pairs from where they are computed to where they are
// last read, and the gradients of parameters from where they are computed to the end.
FailureOr<int64_t> livePeak(func::FuncOp function) {
  BufferAssignment assignment(function.getBody().front());
  if (failed(assignment.run()))
    return failure();
  SmallVector<int64_t> change(assignment.steps() + 2, 0);
  for (const Buffer &buffer : assignment.buffers()) {
    const int64_t bytes = evaluated(buffer.size);
    change[buffer.first] += bytes;
    change[buffer.last + 1] -= bytes;
  }
  int64_t now = 0, most = 0;
  for (int64_t bytes : change)
    most = std::max(most, now += bytes);
  return most;
}

//===--------------------------------------------------------------------------------------------------------===//
// Recomputation
//===--------------------------------------------------------------------------------------------------------===//

struct Cost {
  int64_t flops = 0, traffic = 0; // operations, bytes read and written
};

// Makes the backward part recompute the values in `dropped`, each once, before its first use there. Values that this
// needs and that are not kept are recomputed, too.
class Recomputation {
public:
  Recomputation(func::FuncOp function, const llvm::DenseSet<Value> &dropped)
      : builder(function.getContext()), dropped(dropped) {
    Operation *backward = backwardOf(function);
    for (Operation &op : function.getBody().front()) {
      if (&op == backward)
        break;
      forward.insert(&op);
    }
    for (Operation *op = backward; op; op = op->getNextNode()) {
      later.push_back(op);
      for (Value operand : op->getOperands())
        kept.insert(wholeOf(operand));
    }
  }

  // The values that are kept only because the backward part reads them; results of the function are kept in any case.
  SmallVector<Value> keptValues() const {
    SmallVector<Value> values;
    for (Operation *op : forward)
      for (Value result : op->getResults())
        if (takesMemory(result) && kept.contains(result) && wholeOf(result) == result &&
            llvm::none_of(result.getUsers(), [](Operation *user) { return isa<func::ReturnOp>(user); }))
          values.push_back(result);
    return values;
  }

  void run() {
    for (Operation *op : later) {
      builder.setInsertionPoint(op);
      for (OpOperand &operand : op->getOpOperands())
        operand.set(here(operand.get()));
    }
  }

  Cost cost() const {
    Cost sum;
    for (Operation *op : copies) {
      sum.flops += evaluated(flopsOf(op));
      sum.traffic += evaluated(trafficOf(op));
    }
    return sum;
  }
  size_t count() const { return copies.size(); }
  // Whether every op that runs again does so for its first result. For statistics or a log-sum-exp alone it would cost
  // as much, and kernels need not support leaving out their main result.
  bool forMainResults() const {
    return llvm::none_of(copies, [](Operation *op) { return op->getResult(0).use_empty(); });
  }

private:
  bool isKept(Value value) const {
    Value whole = wholeOf(value);
    return !takesMemory(value) || !whole.getDefiningOp() || !forward.contains(whole.getDefiningOp()) ||
           (kept.contains(whole) && !dropped.contains(whole));
  }
  bool isHere(Value value) const { return isKept(value) || again.contains(value); }

  void made(Operation *copy, ValueRange originals) {
    if (isKernel(copy))
      copies.push_back(copy);
    for (auto [original, result] : llvm::zip_equal(originals, copy->getResults()))
      again[original] = result;
  }

  // `value` as it can be read at the builder's insertion point: itself if it is kept, else recomputed.
  Value here(Value value) {
    if (isKept(value))
      return value;
    if (Value known = again.lookup(value))
      return known;
    Operation *op = value.getDefiningOp();
    auto norm = dyn_cast<AddNormOp>(op);
    auto linear = dyn_cast<LinearOp>(op);
    if (norm && value != norm.getSum() && isHere(norm.getSum())) {
      // Start from the sum, which the gradient reads anyway, instead of from its two operands.
      SmallVector<Value> operands = {here(norm.getSum())};
      llvm::append_range(operands, norm->getOperands().drop_front(2));
      TypeRange types(norm->getResultTypes());
      made(NormOp::create(builder, norm.getLoc(), {types[0], types[2]}, operands, norm->getAttrs()),
           {norm.getResult(), norm.getStats()});
    } else if (Value inner = linear ? yieldedAs(linear, value) : Value(); inner && followsFromResults(linear, inner)) {
      IRMapping mapping;
      again[value] = epilogueValue(linear, inner, mapping);
    } else {
      IRMapping mapping;
      for (Value operand : op->getOperands())
        mapping.map(operand, here(operand));
      made(builder.clone(*op, mapping), op->getResults());
    }
    return again.lookup(value);
  }

  // The value that the epilogue yields for a result; null without an epilogue.
  static Value yieldedAs(LinearOp linear, Value result) {
    if (linear.getEpilogue().empty())
      return {};
    return linear.getEpilogue().front().getTerminator()->getOperand(cast<OpResult>(result).getResultNumber());
  }
  // The available result of the linear that is the epilogue's value `inner`, or null.
  Value resultHere(LinearOp linear, Value inner) const {
    for (Value result : linear.getResults())
      if (yieldedAs(linear, result) == inner && isHere(result))
        return result;
    return {};
  }
  // Whether a value of the epilogue can be computed from available results and the extras, without the product.
  bool followsFromResults(LinearOp linear, Value inner) const {
    if (resultHere(linear, inner))
      return true;
    if (auto argument = dyn_cast<BlockArgument>(inner))
      return argument.getArgNumber() > 0;
    return llvm::all_of(inner.getDefiningOp()->getOperands(),
                        [&](Value operand) { return followsFromResults(linear, operand); });
  }
  Value epilogueValue(LinearOp linear, Value inner, IRMapping &mapping) {
    if (Value result = resultHere(linear, inner))
      return here(result);
    if (auto argument = dyn_cast<BlockArgument>(inner))
      return here(linear.getExtras()[argument.getArgNumber() - 1]);
    if (Value known = mapping.lookupOrNull(inner))
      return known;
    for (Value operand : inner.getDefiningOp()->getOperands())
      mapping.map(operand, epilogueValue(linear, operand, mapping));
    copies.push_back(builder.clone(*inner.getDefiningOp(), mapping));
    return copies.back()->getResult(0);
  }

  OpBuilder builder;
  const llvm::DenseSet<Value> &dropped;
  llvm::SetVector<Operation *> forward;
  SmallVector<Operation *> later; // the backward part
  llvm::DenseSet<Value> kept;     // the values that the backward part reads
  llvm::DenseMap<Value, Value> again;
  SmallVector<Operation *> copies; // kernels
};

//===--------------------------------------------------------------------------------------------------------===//
// The choice
//===--------------------------------------------------------------------------------------------------------===//

struct Outcome {
  int64_t peak;
  Cost cost;
  bool forMainResults = true;
};

// The peak and the cost of recomputing these values, found on a copy of the function.
Outcome attempt(func::FuncOp function, const llvm::DenseSet<Value> &dropped) {
  IRMapping mapping;
  OwningOpRef<func::FuncOp> copy = cast<func::FuncOp>(function->clone(mapping));
  llvm::DenseSet<Value> mapped;
  for (Value value : dropped)
    mapped.insert(mapping.lookup(value));
  Recomputation recomputation(*copy, mapped);
  recomputation.run();
  FailureOr<int64_t> peak = livePeak(*copy);
  assert(succeeded(peak) && "computing again overwrites nothing");
  return {*peak, recomputation.cost(), recomputation.forMainResults()};
}

struct Recompute : impl::RecomputeBase<Recompute> {
  using RecomputeBase::RecomputeBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function.getBody().hasOneBlock() || !backwardOf(function))
      return markAllAnalysesPreserved();
    if (failed(verifyValues(function)))
      return signalPassFailure();
    FailureOr<int64_t> peak = livePeak(function);
    if (failed(peak))
      return signalPassFailure();
    llvm::DenseSet<Value> dropped = choose(function, *peak);
    Recomputation recomputation(function, dropped);
    recomputation.run();
    values += dropped.size();
    copies += recomputation.count();
  }

private:
  // Chooses greedily, in ascending order of operations per byte: drops a value if that lowers the peak.
  llvm::DenseSet<Value> choose(func::FuncOp function, int64_t peak) {
    llvm::DenseSet<Value> dropped;
    std::vector<std::pair<double, Value>> candidates;
    for (Value value : Recomputation(function, dropped).keptValues())
      candidates.emplace_back(static_cast<double>(attempt(function, {value}).cost.flops) / bytesOf(value), value);
    llvm::stable_sort(candidates, llvm::less_first());

    Outcome best{peak, {}};
    for (auto [intensity, value] : candidates) {
      dropped.insert(value);
      Outcome outcome = attempt(function, dropped);
      const bool cheap = outcome.cost.flops - best.cost.flops <= outcome.cost.traffic - best.cost.traffic;
      if (outcome.peak < best.peak && outcome.forMainResults && (level == RecomputeLevel::most || cheap))
        best = outcome;
      else
        dropped.erase(value);
    }
    return dropped;
  }
};

} // namespace
} // namespace xfc
