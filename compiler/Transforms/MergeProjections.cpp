// Merges projections of one attention, or of one recurrence, that read the same rows into one linear over concatenated
// parameters.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <set>

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_MERGEPROJECTIONS
#include "Transforms/Passes.h.inc"

namespace {

using Names = SmallVector<StringRef>;     // weights to be merged, in order
using Linears = SmallVector<LinearOp, 3>; // the linears of such weights in one function

// A function and its parameters by name.
struct Function {
  explicit Function(func::FuncOp op) : op(op) {
    for (BlockArgument argument : op.getArguments())
      if (StringRef name = parameterName(argument); !name.empty())
        parameters.try_emplace(name, argument);
  }

  func::FuncOp op;
  llvm::StringMap<Value> parameters;
};

// The linears that compute the operands of an attention or a recurrence, grouped by the rows they read. Looks through
// writes to the decoding cache and rotations.
SmallVector<Linears> projectionsOf(ArrayRef<Value> operands) {
  llvm::MapVector<Value, Linears> byInput;
  for (Value operand : operands) {
    if (auto write = operand.getDefiningOp<CacheWriteOp>())
      operand = write.getRows();
    if (auto rotate = operand.getDefiningOp<RotateOp>())
      operand = rotate.getX();
    auto linear = operand.getDefiningOp<LinearOp>();
    if (linear && !parameterName(linear.getWeight()).empty() && !llvm::is_contained(byInput[linear.getX()], linear))
      byInput[linear.getX()].push_back(linear);
  }
  SmallVector<Linears> groups;
  for (auto &[input, linears] : byInput)
    if (linears.size() > 1)
      groups.push_back(linears);
  return groups;
}

// The scores from which an attention that is not fused computes `pairs`, or null.
ScoresOp scoresOf(Value pairs) {
  while (Operation *op = pairs.getDefiningOp()) {
    if (auto scores = dyn_cast<ScoresOp>(op))
      return scores;
    if (!isa<DropoutOp, SoftmaxOp, MaskOp, AddDistanceBiasOp, ScaleOp>(op))
      break;
    pairs = op->getOperand(0);
  }
  return {};
}

// The linears of the group in a function; empty if it does not use the group. Fails if they cannot be merged there.
FailureOr<Linears> occurrence(const Names &group, const Function &function, RewriterBase &rewriter) {
  Linears linears;
  for (StringRef name : group) {
    Value weight = function.parameters.lookup(name);
    if (!weight)
      continue;
    if (!weight.hasOneUse())
      return rewriter.notifyMatchFailure(function.op, "a weight of the group has several uses");
    auto linear = dyn_cast<LinearOp>(*weight.user_begin());
    if (!linear || linear.getWeight() != weight || !linear.getEpilogue().empty())
      return rewriter.notifyMatchFailure(function.op, "a weight of the group is used otherwise than by a plain linear");
    linears.push_back(linear);
  }
  if (linears.empty())
    return linears;
  if (linears.size() != group.size())
    return rewriter.notifyMatchFailure(function.op, "only a part of the group is used");
  LinearOp first = linears.front();
  for (LinearOp linear : linears) {
    if (linear.getX() != first.getX())
      return rewriter.notifyMatchFailure(linear, "reads other rows than the rest of the group");
    if (linear.getCompute() != first.getCompute())
      return rewriter.notifyMatchFailure(linear, "computes in another type than the rest of the group");
    if (!linear.getBias() != !first.getBias())
      return rewriter.notifyMatchFailure(linear, "some of the group have a bias and some have none");
    if (linear.getBias() && (parameterName(linear.getBias()).empty() || !linear.getBias().hasOneUse()))
      return rewriter.notifyMatchFailure(linear, "its bias is no parameter of its own");
  }
  return linears;
}

Names biasNames(ArrayRef<LinearOp> linears) {
  Names names;
  for (LinearOp linear : linears)
    names.push_back(parameterName(linear.getBias()));
  return names;
}

Value concat(ValueRange parts, Location loc, OpBuilder &builder) {
  auto first = cast<RankedTensorType>(parts.front().getType());
  SmallVector<int64_t> shape(first.getShape());
  shape[0] = 0;
  for (Type type : parts.getTypes())
    shape[0] += cast<RankedTensorType>(type).getDimSize(0);
  return ConcatOp::create(builder, loc, RankedTensorType::get(shape, first.getElementType()), parts);
}

void merge(ArrayRef<LinearOp> linears, IRRewriter &rewriter) {
  LinearOp first = *llvm::min_element(linears, [](LinearOp a, LinearOp b) { return a->isBeforeInBlock(b); });
  SmallVector<Value> weights, biases;
  SmallVector<Type> types;
  int64_t features = 0;
  for (LinearOp linear : linears) {
    weights.push_back(linear.getWeight());
    if (linear.getBias())
      biases.push_back(linear.getBias());
    auto type = cast<RowsType>(linear.getResult(0).getType());
    types.push_back(type);
    features += type.getFeatures();
  }
  Location loc = rewriter.getFusedLoc(llvm::map_to_vector(linears, [](LinearOp linear) { return linear.getLoc(); }));
  rewriter.setInsertionPoint(first);
  Value weight = concat(weights, loc, rewriter);
  Value bias = biases.empty() ? Value() : concat(biases, loc, rewriter);
  auto part = cast<RowsType>(types.front());
  Type whole = RowsType::get(rewriter.getContext(), part.getSet(), {features}, part.getElementType());
  auto merged =
      LinearOp::create(rewriter, loc, whole, first.getX(), weight, bias, ValueRange(), first.getComputeAttr());
  auto split = SplitOp::create(rewriter, loc, types, merged.getResult(0));
  for (auto [linear, result] : llvm::zip_equal(linears, split.getResults()))
    rewriter.replaceOp(linear, result);
}

struct MergeProjections : impl::MergeProjectionsBase<MergeProjections> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    std::vector<Function> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      functions.emplace_back(function);
    llvm::StringSet<> taken;
    for (const Names &group : proposals()) {
      auto isTaken = [&](StringRef name) { return taken.contains(name); };
      if (llvm::any_of(group, isTaken))
        continue;
      FailureOr<SmallVector<Linears>> found = occurrences(group, functions, rewriter);
      if (failed(found))
        continue;
      taken.insert_range(group);
      ++groups;
      for (const Linears &linears : *found) {
        merge(linears, rewriter);
        merged += linears.size();
      }
    }
  }

private:
  // Every group of weights that could be merged for some attention or recurrence, the largest first.
  std::vector<Names> proposals() {
    std::vector<Names> found;
    std::set<Names> known;
    auto propose = [&](ArrayRef<Value> operands) {
      for (const Linears &linears : projectionsOf(operands)) {
        Names names;
        for (LinearOp linear : linears)
          names.push_back(parameterName(linear.getWeight()));
        if (known.insert(names).second)
          found.push_back(names);
      }
    };
    getOperation().walk([&](Operation *op) {
      if (auto attention = dyn_cast<AttentionOp>(op))
        propose({attention.getQ(), attention.getK(), attention.getV()});
      else if (auto recurrence = dyn_cast<RecurrenceOp>(op))
        propose({recurrence.getGate(), recurrence.getX()});
      else if (auto combine = dyn_cast<CombineOp>(op))
        if (ScoresOp scores = scoresOf(combine.getP()))
          propose({scores.getQ(), scores.getK(), combine.getV()});
    });
    llvm::stable_sort(found, [](const Names &a, const Names &b) { return a.size() > b.size(); });
    return found;
  }

  // The linears of the group in each function that uses it. Fails unless all functions can merge it, with the same
  // biases.
  FailureOr<SmallVector<Linears>> occurrences(const Names &group, ArrayRef<Function> functions,
                                              RewriterBase &rewriter) {
    SmallVector<Linears> all;
    for (const Function &function : functions) {
      FailureOr<Linears> linears = occurrence(group, function, rewriter);
      if (failed(linears))
        return failure();
      if (linears->empty())
        continue;
      if (!all.empty() && biasNames(*linears) != biasNames(all.front()))
        return rewriter.notifyMatchFailure(function.op, "the group has other biases than elsewhere");
      all.push_back(*linears);
    }
    return all;
  }
};

} // namespace
} // namespace xfc
