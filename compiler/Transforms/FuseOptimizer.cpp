// Merges the square_sums of all parameters into one, and the optimizer's steps, too.
#include "Analysis/ParameterLayout.h"
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSEOPTIMIZER
#include "Transforms/Passes.h.inc"

namespace {

struct FuseOptimizer : impl::FuseOptimizerBase<FuseOptimizer> {
  void runOnOperation() override {
    findParameters();
    IRRewriter rewriter(&getContext());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      for (auto clip : llvm::to_vector(function.getOps<ClipFactorOp>()))
        (void)fuseSquareSums(clip, rewriter);
      (void)fuseSteps(function, rewriter);
      (void)merge<RowMomentsOp>(function, rewriter);
      (void)merge<ColumnMomentsOp>(function, rewriter);
      (void)merge<UpdateSquaresOp>(function, rewriter);
      (void)merge<FactoredUpdateOp>(function, rewriter);
    }
  }

private:
  // Collects the names of all parameters of the model.
  void findParameters() {
    names.clear();
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (BlockArgument argument : function.getArguments())
        if (StringRef name = parameterName(argument); !name.empty())
          names.insert(name);
  }

  // Whether `tensors` are the tensors of all parameters: a pass over a block runs over everything from its first to its
  // last tensor.
  bool isWholeBlock(ValueRange tensors, StringRef role) {
    llvm::StringSet<> found;
    for (Value tensor : tensors) {
      NamedArgument argument = argumentOf(tensor);
      if (argument.role != role || !found.insert(argument.name).second)
        return false;
    }
    return llvm::all_of(names.keys(), [&](StringRef name) { return found.contains(name); });
  }

  // The layout of the block that holds `tensors`; `indices` maps their names to their positions in `tensors`.
  FailureOr<ParameterLayout> layOut(ValueRange tensors, llvm::StringMap<size_t> &indices) {
    std::vector<ParameterLayout::Parameter> parameters;
    int64_t bits = 32;
    for (auto [i, tensor] : llvm::enumerate(tensors)) {
      auto type = cast<RankedTensorType>(tensor.getType());
      bits = type.getElementTypeBitWidth();
      indices[argumentOf(tensor).name] = i;
      parameters.push_back({argumentOf(tensor).name.str(), type.getNumElements()});
    }
    // The block is in the order in which the module declares the parameters, which need not be that of the arguments.
    llvm::StringMap<size_t> declared;
    for (auto parameter : getOperation().getOps<ParameterOp>())
      declared.try_emplace(parameter.getSymName(), declared.size());
    llvm::stable_sort(parameters,
                      [&](const auto &a, const auto &b) { return declared.lookup(a.name) < declared.lookup(b.name); });
    return ParameterLayout::of(getOperation(), parameters, bits / 8);
  }
  static SmallVector<size_t> orderOf(const ParameterLayout &layout, const llvm::StringMap<size_t> &indices) {
    return llvm::map_to_vector(layout.parameters(),
                               [&](const ParameterLayout::Parameter &p) { return indices.lookup(p.name); });
  }

  LogicalResult fuseSquareSums(ClipFactorOp clip, RewriterBase &rewriter) {
    if (clip.getSums().size() < 2)
      return rewriter.notifyMatchFailure(clip, "there is one sum already");
    SmallVector<SquareSumOp> sums;
    SmallVector<Value> tensors;
    for (Value value : clip.getSums()) {
      auto sum = value.getDefiningOp<SquareSumOp>();
      if (!sum || !value.hasOneUse())
        return rewriter.notifyMatchFailure(clip, "a sum is no square_sum of its own");
      sums.push_back(sum);
      llvm::append_range(tensors, sum.getTensors());
    }
    if (!isWholeBlock(tensors, attr::gradient))
      return rewriter.notifyMatchFailure(clip, "the sums are not of every parameter's gradient");
    llvm::StringMap<size_t> indices;
    FailureOr<ParameterLayout> layout = layOut(tensors, indices);
    if (failed(layout))
      return failure();
    rewriter.setInsertionPoint(clip);
    int64_t parts = llvm::divideCeil(layout->used(), SquareSumOp::elementsOfPart);
    auto element = cast<RankedTensorType>(sums.front().getType()).getElementType();
    SmallVector<Value> ordered = llvm::map_to_vector(orderOf(*layout, indices), [&](size_t i) { return tensors[i]; });
    auto sum = SquareSumOp::create(rewriter, clip.getLoc(), RankedTensorType::get({parts}, element), ordered);
    rewriter.modifyOpInPlace(clip, [&] { clip.getSumsMutable().assign(sum.getResult()); });
    squareSums += sums.size();
    for (SquareSumOp old : sums)
      rewriter.eraseOp(old);
    return success();
  }

  LogicalResult fuseSteps(func::FuncOp function, RewriterBase &rewriter) {
    auto all = llvm::to_vector(function.getOps<OptimizeOp>());
    if (all.size() < 2)
      return rewriter.notifyMatchFailure(function, "there are not several steps of an optimizer");
    OptimizeOp last = all.back();
    const unsigned states = last.getNumStates();
    SmallVector<Value> parameters, gradients;
    SmallVector<SmallVector<Value>> old(states), updated(1 + states); // each state; parameters, then each state
    for (OptimizeOp step : all) {
      if (step.getRule() != last.getRule() || step.getHyper() != last.getHyper() ||
          step.getFactor() != last.getFactor())
        return rewriter.notifyMatchFailure(step, "differs in the rule, in hyperparameters or in the clipping factor");
      for (Operation *user : step->getUsers())
        if (!last->isBeforeInBlock(user))
          return rewriter.notifyMatchFailure(step, "a result is read before the last step");
      const size_t n = step.getParameters().size();
      llvm::append_range(parameters, step.getParameters());
      llvm::append_range(gradients, step.getGradients());
      for (unsigned i = 0; i < states; ++i)
        llvm::append_range(old[i], step.getState(i));
      for (unsigned i = 0; i < 1 + states; ++i)
        llvm::append_range(updated[i], step.getUpdated().slice(i * n, n));
    }
    if (!isWholeBlock(parameters, attr::parameter))
      return rewriter.notifyMatchFailure(function, "some parameter of the model is not updated");
    llvm::StringMap<size_t> indices;
    FailureOr<ParameterLayout> layout = layOut(parameters, indices);
    if (failed(layout))
      return failure();
    const SmallVector<size_t> order = orderOf(*layout, indices);
    auto sorted = [&](ArrayRef<Value> values) {
      return llvm::map_to_vector(order, [&](size_t i) { return values[i]; });
    };
    SmallVector<Value> sortedStates, sortedUpdated;
    for (ArrayRef<Value> values : old)
      llvm::append_range(sortedStates, sorted(values));
    for (ArrayRef<Value> values : updated)
      llvm::append_range(sortedUpdated, sorted(values));
    rewriter.setInsertionPoint(last);
    auto fused = OptimizeOp::create(rewriter, function.getLoc(), ValueRange(sortedUpdated).getTypes(), last.getRule(),
                                    last.getHyper(), last.getFactor(), sorted(parameters), sorted(gradients),
                                    sortedStates, /*packs=*/false, /*compute=*/nullptr);
    rewriter.replaceAllUsesWith(sortedUpdated, fused.getUpdated());
    steps += all.size();
    for (OptimizeOp step : all)
      rewriter.eraseOp(step);
    return success();
  }

  // Merges the ops of one kind, each of which takes its tensors one by one: list by list of their operands and results.
  template <typename Op> LogicalResult merge(func::FuncOp function, RewriterBase &rewriter) {
    auto all = llvm::to_vector(function.getOps<Op>());
    if (all.size() < 2)
      return rewriter.notifyMatchFailure(function, "there are not several such ops");
    Op last = all.back();
    auto properties = last.getProperties();
    constexpr size_t scalars = requires { last.getFactor(); } ? 2 : 1; // the operands that are no lists come first
    SmallVector<SmallVector<Value>> operands(properties.operandSegmentSizes.size()),
        results(last.getResultSegments().size());
    for (Op op : all) {
      if (op.getRule() != last.getRule() ||
          !llvm::equal(op->getOperands().take_front(scalars), last->getOperands().take_front(scalars)))
        return rewriter.notifyMatchFailure(op, "differs in the rule, in hyperparameters or in the clipping factor");
      for (Operation *user : op->getUsers())
        if (!last->isBeforeInBlock(user))
          return rewriter.notifyMatchFailure(op, "a result is read before the last such op");
      for (size_t i = scalars; i < operands.size(); ++i)
        llvm::append_range(operands[i], op.getODSOperands(i));
      for (size_t i = 0; i < results.size(); ++i)
        llvm::append_range(results[i], op.getResultSegment(i));
    }
    OperationState merged(function.getLoc(), Op::getOperationName());
    merged.addOperands(last->getOperands().take_front(scalars));
    for (size_t i = scalars; i < operands.size(); ++i) {
      properties.operandSegmentSizes[i] = static_cast<int32_t>(operands[i].size());
      merged.addOperands(operands[i]);
    }
    SmallVector<Value> old;
    for (ArrayRef<Value> kind : results)
      llvm::append_range(old, kind);
    merged.addTypes(ValueRange(old).getTypes());
    merged.getOrAddProperties<typename Op::Properties>() = properties;
    rewriter.setInsertionPoint(last);
    rewriter.replaceAllUsesWith(old, rewriter.create(merged)->getResults());
    steps += all.size();
    for (Op op : all)
      rewriter.eraseOp(op);
    return success();
  }

  llvm::StringSet<> names;
};

} // namespace
} // namespace xfc
