// Has the product that makes keys and values write them to the cache.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_FUSECACHEWRITE
#include "Transforms/Passes.h.inc"

namespace {

struct CacheWritePattern : OpRewritePattern<SplitOp> {
  CacheWritePattern(MLIRContext *context, Pass::Statistic &fused) : OpRewritePattern(context), fused(fused) {}

  LogicalResult matchAndRewrite(SplitOp split, PatternRewriter &rewriter) const override {
    auto linear = split.getX().getDefiningOp<LinearOp>();
    if (!linear)
      return rewriter.notifyMatchFailure(split, "what is split is no linear");
    if (!linear.getEpilogue().empty())
      return rewriter.notifyMatchFailure(split, "the linear has an epilogue");
    if (!linear->hasOneUse())
      return rewriter.notifyMatchFailure(split, "the linear has another use");

    SmallVector<CacheWriteOp> writes; // of the last parts
    for (OpResult part : llvm::reverse(split.getResults().drop_front())) {
      CacheWriteOp write = writeOf(part, linear);
      if (!write)
        break;
      writes.insert(writes.begin(), write);
    }
    if (writes.empty())
      return rewriter.notifyMatchFailure(split, "its last part is not written to a cache as it is");
    const ResultRange others = split.getResults().drop_back(writes.size());
    const int64_t features = extentOf(others);
    if (features % LinearToCacheOp::columnsTogether)
      return rewriter.notifyMatchFailure(split, "a part does not begin at a multiple of 16 columns");

    SmallVector<Value> caches;
    for (CacheWriteOp write : writes)
      caches.push_back(write.getCache());
    rewriter.setInsertionPoint(linear);
    auto x = cast<RowsType>(linear.getResult(0).getType());
    auto product = LinearToCacheOp::create(rewriter, linear.getLoc(),
                                           RowsType::get(getContext(), x.getSet(), {features}, x.getElementType()),
                                           ValueRange(caches).getTypes(), linear.getX(), linear.getWeight(),
                                           linear.getBias(), caches, linear.getComputeAttr());
    for (auto [write, written] : llvm::zip_equal(writes, product.getWritten())) {
      rewriter.replaceOp(write, written);
      ++fused;
    }
    SmallVector<Value> parts = {product.getResult()};
    if (others.size() > 1)
      parts = SplitOp::create(rewriter, split.getLoc(), others.getTypes(), product.getResult()).getResults();
    rewriter.replaceAllUsesWith(others, parts);
    rewriter.eraseOp(split);
    rewriter.eraseOp(linear);
    return success();
  }

private:
  // The only use of a part, if it is a write to a cache that may come as early as the linear.
  static CacheWriteOp writeOf(OpResult part, LinearOp linear) {
    if (!part.hasOneUse())
      return {};
    auto write = dyn_cast<CacheWriteOp>(*part.user_begin());
    if (!write || write.getRows() != part || !write.getCache().hasOneUse() || !isa<BlockArgument>(write.getCache()) ||
        write->getBlock() != linear->getBlock() || write.getType().getFeatures() % LinearToCacheOp::columnsTogether)
      return {};
    return write;
  }

  Pass::Statistic &fused;
};

struct FuseCacheWrite : impl::FuseCacheWriteBase<FuseCacheWrite> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<CacheWritePattern>(&getContext(), fused);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace xfc
