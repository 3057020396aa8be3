// Fuses both gradients of a norm into one pass over its rows.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSENORMGRAD
#include "Transforms/Passes.h.inc"

namespace {

struct FuseNormGrad : impl::FuseNormGradBase<FuseNormGrad> {
  using FuseNormGradBase::FuseNormGradBase;

  void runOnOperation() override {
    SmallVector<NormWeightGradOp> weightGrads;
    getOperation()->walk([&](NormWeightGradOp op) { weightGrads.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (NormWeightGradOp weightGrad : weightGrads)
      if (NormGradOp grad = gradBefore(weightGrad)) {
        fuse(grad, weightGrad, rewriter);
        ++fused;
      }
  }

private:
  // The gradient of the norm's rows, computed before that of its weight; null if there is none.
  static NormGradOp gradBefore(NormWeightGradOp weightGrad) {
    NormGradOp grad;
    for (Operation *user : weightGrad.getStats().getUsers())
      if (auto candidate = dyn_cast<NormGradOp>(user))
        if (candidate.getDy() == weightGrad.getDy() && candidate.getX() == weightGrad.getX() &&
            candidate->getBlock() == weightGrad->getBlock() && candidate->isBeforeInBlock(weightGrad))
          grad = candidate;
    return grad;
  }

  void fuse(NormGradOp grad, NormWeightGradOp weightGrad, IRRewriter &rewriter) const {
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
  }
};

} // namespace
} // namespace xfc
