// Pulls elementwise ops that follow a linear or its input gradient into the op's epilogue.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSEEPILOGUE
#include "Transforms/Passes.h.inc"

namespace {

constexpr size_t maxResults = 2;

LinearOp rebuild(PatternRewriter &rewriter, LinearOp op, TypeRange types, ValueRange extras) {
  return LinearOp::create(rewriter, op.getLoc(), types, op.getX(), op.getWeight(), op.getBias(), extras,
                          op.getComputeAttr());
}
LinearInputGradOp rebuild(PatternRewriter &rewriter, LinearInputGradOp op, TypeRange types, ValueRange extras) {
  return LinearInputGradOp::create(rewriter, op.getLoc(), types, op.getDy(), op.getWeight(), extras,
                                   op.getComputeAttr());
}

// The ops that form an epilogue, in program order, and the values they compute and read.
struct Epilogue {
  SmallVector<Operation *> ops;
  SetVector<Value> values; // the row and the ops' results
  SetVector<Value> extras; // the other values that the ops read

  // The values that are needed outside the epilogue.
  SmallVector<Value> results() const {
    auto isInside = [&](Operation *user) { return llvm::is_contained(ops, user); };
    SmallVector<Value> needed;
    for (Value value : values)
      if (!llvm::all_of(value.getUsers(), isInside))
        needed.push_back(value);
    return needed;
  }
};

// Whether `op` can join the epilogue: everything it reads is in the epilogue or exists before the linear.
bool canFollow(Operation *op, const Epilogue &epilogue, Operation *linear) {
  if (!op->hasTrait<InEpilogue>() || op->use_empty() || op->getBlock() != linear->getBlock())
    return false;
  if (isa<DropoutOp>(op) && llvm::any_of(epilogue.ops, [](Operation *other) { return isa<DropoutOp>(other); }))
    return false;
  return llvm::all_of(op->getOperands(), [&](Value operand) {
    Operation *definition = operand.getDefiningOp();
    return epilogue.values.contains(operand) || !definition || definition->isBeforeInBlock(linear);
  });
}

// The longest epilogue with at most maxResults results.
Epilogue collect(Operation *linear) {
  Epilogue grown, best;
  grown.values.insert(linear->getResult(0));
  while (true) {
    Operation *next = nullptr;
    for (Value value : grown.values)
      for (Operation *user : value.getUsers())
        if (!llvm::is_contained(grown.ops, user) && (!next || user->isBeforeInBlock(next)) &&
            canFollow(user, grown, linear))
          next = user;
    if (!next)
      return best;
    grown.ops.push_back(next);
    grown.values.insert(next->getResult(0));
    for (Value operand : next->getOperands())
      if (!grown.values.contains(operand))
        grown.extras.insert(operand);
    if (grown.results().size() <= maxResults)
      best = grown;
  }
}

template <typename Linear> struct EpiloguePattern : OpRewritePattern<Linear> {
  EpiloguePattern(MLIRContext *context, Pass::Statistic &epilogues, Pass::Statistic &pulled)
      : OpRewritePattern<Linear>(context), epilogues(epilogues), pulled(pulled) {}

  LogicalResult matchAndRewrite(Linear linear, PatternRewriter &rewriter) const override {
    if (!linear.getEpilogue().empty())
      return rewriter.notifyMatchFailure(linear, "has an epilogue already");
    Epilogue epilogue = collect(linear);
    if (epilogue.ops.empty())
      return rewriter.notifyMatchFailure(linear, "no elementwise op follows whose other operands exist before it");

    SmallVector<Value> results = epilogue.results();
    Linear fused = rebuild(rewriter, linear, ValueRange(results).getTypes(), epilogue.extras.getArrayRef());
    Type row = linear.getResult(0).getType();
    SmallVector<Type> types(1 + epilogue.extras.size(), row);
    SmallVector<Location> locations(types.size(), linear.getLoc());
    Block *block = rewriter.createBlock(&fused.getEpilogue(), {}, types, locations);
    IRMapping mapping;
    mapping.map(linear.getResult(0), block->getArgument(0));
    mapping.map(epilogue.extras.getArrayRef(), block->getArguments().drop_front());
    for (Operation *op : epilogue.ops)
      rewriter.clone(*op, mapping);
    SmallVector<Value> yielded;
    for (Value result : results)
      yielded.push_back(mapping.lookup(result));
    YieldOp::create(rewriter, linear.getLoc(), yielded);

    for (auto [old, now] : llvm::zip_equal(results, fused.getResults()))
      rewriter.replaceAllUsesWith(old, now);
    for (Operation *op : llvm::reverse(epilogue.ops))
      rewriter.eraseOp(op);
    rewriter.eraseOp(linear);
    ++epilogues;
    pulled += epilogue.ops.size();
    return success();
  }

  Pass::Statistic &epilogues, &pulled;
};

// If the activation and its gradient go through the same dropout, relu's gradient reads the activation after dropout
// instead of before it. Where elements were dropped, that is 0, and relu's gradient is 0 whatever dy is, so the dropout
// of dy need not drop anything any more.
struct DroppedActivationPattern : OpRewritePattern<ActivationGradOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ActivationGradOp grad, PatternRewriter &rewriter) const override {
    if (grad.getKind() != ActivationKind::relu)
      return rewriter.notifyMatchFailure(grad, "only relu's gradient can be told from its result");
    auto dropped = grad.getDy().getDefiningOp<DropoutOp>();
    if (!dropped || dropped.getKept())
      return rewriter.notifyMatchFailure(grad, "its gradient is not dropped");
    // The gradient reads relu's result or its operand.
    auto activation = grad.getX().getDefiningOp<ActivationOp>();
    if (!activation || activation.getKind() != ActivationKind::relu)
      for (Operation *user : grad.getX().getUsers())
        if (auto candidate = dyn_cast<ActivationOp>(user))
          activation = candidate;
    if (!activation || activation.getKind() != ActivationKind::relu)
      return rewriter.notifyMatchFailure(grad, "its activation is not here");
    for (Operation *user : activation.getResult().getUsers()) {
      auto dropout = dyn_cast<DropoutOp>(user);
      if (!dropout || dropout.getId() != dropped.getId() || dropout.getRate() != dropped.getRate() ||
          dropout->getBlock() != grad->getBlock() || !dropout->isBeforeInBlock(grad))
        continue;
      rewriter.setInsertionPoint(dropped);
      auto kept = DropoutOp::create(rewriter, dropped.getLoc(), dropped.getType(), dropped.getX(), dropped.getRate(),
                                    dropped.getId(), /*kept=*/true);
      rewriter.modifyOpInPlace(grad, [&] {
        grad.getXMutable().assign(dropout.getResult());
        grad.getDyMutable().assign(kept);
      });
      return success();
    }
    return rewriter.notifyMatchFailure(grad, "the activation was not dropped like its gradient");
  }
};

struct FuseEpilogue : impl::FuseEpilogueBase<FuseEpilogue> {
  void runOnOperation() override {
    // The first set must reach its fixed point before the second runs: it decides which values an epilogue must yield.
    RewritePatternSet uses(&getContext());
    uses.add<DroppedActivationPattern>(&getContext());
    RewritePatternSet patterns(&getContext());
    patterns.add<EpiloguePattern<LinearOp>, EpiloguePattern<LinearInputGradOp>>(&getContext(), epilogues, pulled);
    if (failed(applyPatternsGreedily(getOperation(), std::move(uses))) ||
        failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace xfc
