// Fuses both gradients of a norm into one pass over its rows.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSENORMGRAD
#include "Transforms/Passes.h.inc"

namespace {

struct NormGradPattern : OpRewritePattern<NormWeightGradOp> {
  NormGradPattern(MLIRContext *context, int64_t parts, Pass::Statistic &fused)
      : OpRewritePattern(context), parts(parts), fused(fused) {}

  LogicalResult matchAndRewrite(NormWeightGradOp weightGrad, PatternRewriter &rewriter) const override {
    NormGradOp grad;
    for (Operation *user : weightGrad.getStats().getUsers())
      if (auto candidate = dyn_cast<NormGradOp>(user))
        if (candidate.getDy() == weightGrad.getDy() && candidate.getX() == weightGrad.getX() &&
            candidate->getBlock() == weightGrad->getBlock() && candidate->isBeforeInBlock(weightGrad))
          grad = candidate;
    if (!grad)
      return rewriter.notifyMatchFailure(weightGrad, "the gradient of its norm's rows is not computed before it");
    auto partsOf = [&](Type type) -> Type {
      auto sum = cast<RankedTensorType>(type);
      return RankedTensorType::get({parts, sum.getDimSize(0)}, sum.getElementType());
    };
    rewriter.setInsertionPoint(grad);
    SmallVector<Type> types = {grad.getType()};
    for (Type type : weightGrad.getResultTypes())
      types.push_back(partsOf(type));
    auto both =
        NormGradWithPartsOp::create(rewriter, weightGrad.getLoc(), types, grad->getOperands(), grad->getAttrs());
    rewriter.replaceOp(grad, both.getResult());
    rewriter.setInsertionPoint(weightGrad);
    rewriter.replaceOpWithNewOp<SumPartsOp>(weightGrad, weightGrad.getResultTypes(), both.getResults().drop_front());
    ++fused;
    return success();
  }

  const int64_t parts;
  Pass::Statistic &fused;
};

struct FuseNormGrad : impl::FuseNormGradBase<FuseNormGrad> {
  using FuseNormGradBase::FuseNormGradBase;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<NormGradPattern>(&getContext(), parts, fused);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace xfc
