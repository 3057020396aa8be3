// Fuses scores, scale, bias, mask, softmax, dropout and combine into one xfc.attention.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSEATTENTION
#include "Transforms/Passes.h.inc"

namespace {

struct AttentionPattern : OpRewritePattern<CombineOp> {
  AttentionPattern(MLIRContext *context, Pass::Statistic &fused, Pass::Statistic &withWeights)
      : OpRewritePattern(context), fused(fused), withWeights(withWeights) {}

  LogicalResult matchAndRewrite(CombineOp combine, PatternRewriter &rewriter) const override {
    auto dropout = combine.getP().getDefiningOp<DropoutOp>();
    if (dropout && !dropout->hasOneUse())
      return rewriter.notifyMatchFailure(combine, "the dropped probabilities have another use");
    Value probabilities = dropout ? dropout.getX() : combine.getP();
    auto softmax = probabilities.getDefiningOp<SoftmaxOp>();
    if (!softmax)
      return rewriter.notifyMatchFailure(combine, "its probabilities are no softmax");
    Operation *reader = dropout ? dropout.getOperation() : combine.getOperation();
    bool returned = false;
    for (OpOperand &use : probabilities.getUses()) {
      if (use.getOwner() == reader)
        continue;
      if (!isa<func::ReturnOp>(use.getOwner()))
        return rewriter.notifyMatchFailure(combine, "the probabilities have a use besides the function's results");
      returned = true;
    }

    Value pairs = softmax.getX();
    auto mask = pairs.getDefiningOp<MaskOp>();
    if (mask) {
      if (mask.getZero())
        return rewriter.notifyMatchFailure(combine, "the mask puts 0 instead of minus infinity");
      if (!mask->hasOneUse())
        return rewriter.notifyMatchFailure(combine, "the masked scores have another use");
      pairs = mask.getX();
    } else if (softmax.getX().getType().getCausal()) {
      return rewriter.notifyMatchFailure(combine, "a causal attention without mask");
    }
    auto biased = pairs.getDefiningOp<AddDistanceBiasOp>();
    if (biased) {
      if (!biased->hasOneUse())
        return rewriter.notifyMatchFailure(combine, "the biased scores have another use");
      pairs = biased.getX();
    }
    auto scale = pairs.getDefiningOp<ScaleOp>();
    if (scale) {
      if (!scale->hasOneUse())
        return rewriter.notifyMatchFailure(combine, "the scaled scores have another use");
      pairs = scale.getX();
    }
    auto scores = pairs.getDefiningOp<ScoresOp>();
    if (!scores)
      return rewriter.notifyMatchFailure(combine, "what is normalized are no scores");
    if (!scores->hasOneUse())
      return rewriter.notifyMatchFailure(combine, "the scores have another use");
    PairsType type = scores.getType();
    Type element = type.getElementType();
    if (scores.getQ().getType().getElementType() != element || combine.getV().getType().getElementType() != element ||
        combine.getType().getElementType() != element)
      return rewriter.notifyMatchFailure(combine, "queries, values and scores differ in type");

    Type lse = RowsType::get(getContext(), type.getQueries(), {type.getHeads()}, element);
    auto attention = AttentionOp::create(
        rewriter, combine.getLoc(), combine.getType(), lse, returned ? Type(type) : Type(), scores.getQ(),
        scores.getK(), combine.getV(), biased ? biased.getBias() : Value(), /*k_scale=*/Value(), /*v_scale=*/Value(),
        type.getHeads(), scale ? scale.getFactor() : APFloat(1.0), type.getPadding(), type.getCausal(),
        mask ? mask.getReachAttr() : IntegerAttr(), dropout ? dropout.getRate() : APFloat(0.0),
        dropout ? dropout.getId() : 0, ComputeTypeAttr());
    if (returned)
      rewriter.replaceUsesWithIf(probabilities, attention.getWeights(),
                                 [&](OpOperand &use) { return isa<func::ReturnOp>(use.getOwner()); });
    rewriter.replaceOp(combine, attention.getResult());
    ++fused;
    withWeights += returned;
    return success();
  }

  Pass::Statistic &fused, &withWeights;
};

struct FuseAttention : impl::FuseAttentionBase<FuseAttention> {
  using FuseAttentionBase::FuseAttentionBase;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<AttentionPattern>(&getContext(), fused, withWeights);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace xfc
