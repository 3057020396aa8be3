// Fuses linear_cross_entropy and the gradient of its logits into one op.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSELOSSGRADIENT
#include "Transforms/Passes.h.inc"

namespace {

struct LossGradientPattern : OpRewritePattern<CrossEntropyGradOp> {
  LossGradientPattern(MLIRContext *context, Pass::Statistic &fused) : OpRewritePattern(context), fused(fused) {}

  LogicalResult matchAndRewrite(CrossEntropyGradOp grad, PatternRewriter &rewriter) const override {
    auto loss = grad.getLogits().getDefiningOp<LinearCrossEntropyOp>();
    if (!loss || loss->getBlock() != grad->getBlock())
      return rewriter.notifyMatchFailure(grad, "the logits are not of a linear_cross_entropy");
    if (grad.getLogits() != loss.getLogits() || !loss.getLogits().hasOneUse())
      return rewriter.notifyMatchFailure(grad, "the logits have another use");
    if (!loss.getLse().hasOneUse() || grad.getLse() != loss.getLse())
      return rewriter.notifyMatchFailure(grad, "the log-sum-exp has another use");
    if (grad.getLabels() != loss.getLabels() || grad.getSmoothing() != loss.getSmoothing())
      return rewriter.notifyMatchFailure(grad, "labels or smoothing differ");
    if (Operation *from = grad.getDloss().getDefiningOp();
        from && !(from->getBlock() == loss->getBlock() && from->isBeforeInBlock(loss)))
      return rewriter.notifyMatchFailure(grad, "the loss's gradient is not known before the loss");
    rewriter.setInsertionPoint(loss);
    auto whole = LinearCrossEntropyWithGradOp::create(rewriter, loss.getLoc(), loss.getLoss().getType(),
                                                      loss.getNll().getType(), grad.getType(), loss.getX(),
                                                      loss.getWeight(), loss.getBias(), loss.getLabels(),
                                                      loss.getSmoothing(), grad.getDloss(), loss.getComputeAttr());
    rewriter.replaceOp(grad, whole.getDlogits());
    rewriter.replaceAllUsesWith(loss.getLoss(), whole.getLoss());
    rewriter.replaceAllUsesWith(loss.getNll(), whole.getNll());
    rewriter.eraseOp(loss);
    ++fused;
    return success();
  }

  Pass::Statistic &fused;
};

struct FuseLossGradient : impl::FuseLossGradientBase<FuseLossGradient> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<LossGradientPattern>(&getContext(), fused);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace xfc
