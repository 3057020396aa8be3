// Lets the optimizer write the packed weights of the next step along with the parameters.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/IR/PatternMatch.h"
#include "plan/Programs.h"
#include "llvm/ADT/StringSet.h"
#include <set>

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSEPACKING
#include "Transforms/Passes.h.inc"

namespace {

struct FusePacking : impl::FusePackingBase<FusePacking> {
  void runOnOperation() override {
    findWeights();
    IRRewriter rewriter(&getContext());
    getOperation().walk([&](OptimizeOp step) {
      if (succeeded(fuse(step, rewriter)))
        ++packing;
    });
  }

private:
  // Finds the weights that matrix products of the training step read, each as the list of its parameters.
  void findWeights() {
    weights.clear();
    types.clear();
    auto training = getOperation().lookupSymbol<func::FuncOp>(programs::lossAndGradients);
    if (!training)
      return;
    training.walk([&](Operation *op) {
      if (!isa<LinearOp, LinearInputGradOp, LinearCrossEntropyOp, LinearCrossEntropyWithGradOp>(op))
        return;
      types.insert(cast<ProductOpInterface>(op).getCompute());
      Value weight = op->getOperand(1);
      auto concat = weight.getDefiningOp<ConcatOp>();
      weights.push_back(
          llvm::map_to_vector(concat ? ValueRange(concat.getParts()) : ValueRange(weight), parameterName));
    });
  }

  LogicalResult fuse(OptimizeOp step, RewriterBase &rewriter) {
    if (step.getPacks())
      return rewriter.notifyMatchFailure(step, "it packs already");
    llvm::StringSet<> updated;
    for (Value parameter : step.getParameters())
      updated.insert(parameterName(parameter));
    if (types.size() > 1)
      return rewriter.notifyMatchFailure(step, "some of its weights are rounded when they are packed, others are not");
    if (types.empty() || !*types.begin())
      return rewriter.notifyMatchFailure(step, "its weights are not rounded: the training step itself packs them");
    bool any = false;
    for (ArrayRef<StringRef> parts : weights) {
      const auto held = llvm::count_if(parts, [&](StringRef part) { return updated.contains(part); });
      if (held && held < static_cast<int64_t>(parts.size()))
        return rewriter.notifyMatchFailure(step, "it holds only a part of a weight");
      any |= held > 0;
    }
    if (!any)
      return rewriter.notifyMatchFailure(step, "it holds no weight of a matrix product");
    rewriter.modifyOpInPlace(step, [&] {
      step.setPacks(true);
      step.setCompute(*types.begin());
    });
    return success();
  }

  SmallVector<SmallVector<StringRef>> weights;
  std::set<std::optional<ComputeType>> types; // that these products round their operands to
};

} // namespace
} // namespace xfc
