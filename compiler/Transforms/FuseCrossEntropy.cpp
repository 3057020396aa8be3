// Fuses output projection, log_softmax and nll into xfc.linear_cross_entropy, or only the last two into
// xfc.cross_entropy.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSECROSSENTROPY
#include "Transforms/Passes.h.inc"

namespace {

struct CrossEntropyPattern : OpRewritePattern<NllOp> {
  CrossEntropyPattern(MLIRContext *context, Pass::Statistic &fused) : OpRewritePattern(context), fused(fused) {}

  LogicalResult matchAndRewrite(NllOp nll, PatternRewriter &rewriter) const override {
    auto softmax = nll.getLogProbs().getDefiningOp<LogSoftmaxOp>();
    if (!softmax)
      return rewriter.notifyMatchFailure(nll, "its log-probabilities are no log_softmax");
    if (!softmax->hasOneUse())
      return rewriter.notifyMatchFailure(nll, "the log-probabilities have another use");
    Type perRow = nll.getLoss().getType();
    auto loss = CrossEntropyOp::create(rewriter, nll.getLoc(), perRow, perRow, perRow, softmax.getX(), nll.getLabels(),
                                       nll.getSmoothing());
    rewriter.replaceOp(nll, {loss.getLoss(), loss.getNll()});
    ++fused;
    return success();
  }

  Pass::Statistic &fused;
};

struct LinearCrossEntropyPattern : OpRewritePattern<CrossEntropyOp> {
  LinearCrossEntropyPattern(MLIRContext *context, Pass::Statistic &withLinear)
      : OpRewritePattern(context), withLinear(withLinear) {}

  LogicalResult matchAndRewrite(CrossEntropyOp loss, PatternRewriter &rewriter) const override {
    auto linear = loss.getLogits().getDefiningOp<LinearOp>();
    if (!linear)
      return rewriter.notifyMatchFailure(loss, "the logits are no linear");
    if (!linear.getEpilogue().empty())
      return rewriter.notifyMatchFailure(loss, "the projection has an epilogue");
    if (!linear->hasOneUse())
      return rewriter.notifyMatchFailure(loss, "the logits have another use");
    Type perRow = loss.getLoss().getType();
    auto whole = LinearCrossEntropyOp::create(rewriter, linear.getLoc(), perRow, perRow, loss.getLogits().getType(),
                                              perRow, linear.getX(), linear.getWeight(), linear.getBias(),
                                              loss.getLabels(), loss.getSmoothing(), linear.getComputeAttr());
    rewriter.replaceOp(loss, {whole.getLoss(), whole.getNll(), whole.getLse()});
    ++withLinear;
    return success();
  }

  Pass::Statistic &withLinear;
};

struct FuseCrossEntropy : impl::FuseCrossEntropyBase<FuseCrossEntropy> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<CrossEntropyPattern>(&getContext(), fused);
    patterns.add<LinearCrossEntropyPattern>(&getContext(), withLinear);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace xfc
