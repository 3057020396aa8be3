// Fuses a residual add and the norm of the sum into one xfc.add_norm.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSEADDNORM
#include "Transforms/Passes.h.inc"

namespace {

// Whether `value` exists before `op`, which lies in a block of its own function.
bool existsBefore(Value value, Operation *op) {
  Operation *definition = value.getDefiningOp();
  return !definition || (definition->getBlock() == op->getBlock() && definition->isBeforeInBlock(op));
}

struct AddNormPattern : OpRewritePattern<NormOp> {
  AddNormPattern(MLIRContext *context, Pass::Statistic &fused) : OpRewritePattern(context), fused(fused) {}

  LogicalResult matchAndRewrite(NormOp norm, PatternRewriter &rewriter) const override {
    auto add = norm.getX().getDefiningOp<AddOp>();
    if (!add)
      return rewriter.notifyMatchFailure(norm, "what is normalized is no sum");
    // The sum may be read before the norm, so the fused op is inserted where the add was.
    if (!existsBefore(norm.getWeight(), add) || (norm.getBias() && !existsBefore(norm.getBias(), add)))
      return rewriter.notifyMatchFailure(norm, "its weights are computed after the sum");
    rewriter.setInsertionPoint(add);
    SmallVector<Value> operands = {add.getA(), add.getB()};
    llvm::append_range(operands, norm->getOperands().drop_front());
    SmallVector<Type> types = {norm.getResult().getType(), add.getType(), norm.getStats().getType()};
    auto fusedNorm = AddNormOp::create(rewriter, norm.getLoc(), types, operands, norm->getAttrs());
    rewriter.replaceOp(norm, {fusedNorm.getResult(), fusedNorm.getStats()});
    rewriter.replaceOp(add, fusedNorm.getSum());
    ++fused;
    return success();
  }

  Pass::Statistic &fused;
};

struct FuseAddNorm : impl::FuseAddNormBase<FuseAddNorm> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<AddNormPattern>(&getContext(), fused);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace xfc
