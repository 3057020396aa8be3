// Fuses output projection, log_softmax and candidates into xfc.linear_candidates and xfc.merge_candidates.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSECANDIDATES
#include "Transforms/Passes.h.inc"

namespace {

struct CandidatesPattern : OpRewritePattern<CandidatesOp> {
  CandidatesPattern(MLIRContext *context, int64_t unit, int64_t enough, Pass::Statistic &fused)
      : OpRewritePattern(context), unit(unit), enough(enough), fused(fused) {}

  LogicalResult matchAndRewrite(CandidatesOp candidates, PatternRewriter &rewriter) const override {
    auto softmax = candidates.getLogProbs().getDefiningOp<LogSoftmaxOp>();
    if (!softmax)
      return rewriter.notifyMatchFailure(candidates, "its log-probabilities are no log_softmax");
    if (!softmax->hasOneUse())
      return rewriter.notifyMatchFailure(candidates, "the log-probabilities have another use");
    auto linear = softmax.getX().getDefiningOp<LinearOp>();
    if (!linear)
      return rewriter.notifyMatchFailure(candidates, "the logits are no linear");
    if (!linear.getEpilogue().empty())
      return rewriter.notifyMatchFailure(candidates, "the projection has an epilogue");
    if (!linear->hasOneUse())
      return rewriter.notifyMatchFailure(candidates, "the logits have another use");

    constexpr int64_t widest = 512;
    const int64_t vocabulary = linear.getWeight().getType().getDimSize(0);
    const int64_t slab = std::min<int64_t>(widest, unit * llvm::divideCeil(llvm::divideCeil(vocabulary, unit), enough)),
                  slabs = llvm::divideCeil(vocabulary, slab);
    RowsType tokens = candidates.getTokens().getType(), number = candidates.getWantedLogProb().getType();
    const int64_t count = tokens.getFeatures();
    auto rows = [&](int64_t features, Type element) {
      return RowsType::get(getContext(), tokens.getSet(), {features}, element);
    };
    auto slabsFound = LinearCandidatesOp::create(
        rewriter, candidates.getLoc(), rows(slabs * count, tokens.getElementType()),
        rows(slabs * count, number.getElementType()), rows(slabs, number.getElementType()), number, linear.getX(),
        linear.getWeight(), linear.getBias(), candidates.getWanted(), candidates.getExcluded(), slab,
        candidates.getRenormalize(), linear.getComputeAttr());
    rewriter.replaceOpWithNewOp<MergeCandidatesOp>(candidates, candidates.getResultTypes(), slabsFound.getTokens(),
                                                   slabsFound.getLargest(), slabsFound.getLse(),
                                                   slabsFound.getWantedLogit());
    ++fused;
    return success();
  }

  const int64_t unit, enough;
  Pass::Statistic &fused;
};

struct FuseCandidates : impl::FuseCandidatesBase<FuseCandidates> {
  using FuseCandidatesBase::FuseCandidatesBase;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<CandidatesPattern>(&getContext(), unit, enough, fused);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace xfc
