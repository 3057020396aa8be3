// The gradients of a norm's weights: their partial sums, added up, and without partial sums.
#include "Emitters.h"

using namespace mlir;

namespace xfc {
// Each chunk sums one vector of columns.
static KernelInfo emitSumParts(KernelBuilder &k, SumPartsOp op) {
  auto type = cast<RankedTensorType>(op.getParts().front().getType());
  const int64_t parts = type.getDimSize(0), width = type.getDimSize(1), lanes = k.lanes(),
                chunks = (width + lanes - 1) / lanes;
  Value column = k.mul(k.chunk, lanes);
  for (OpResult result : op.getSums()) {
    if (result.use_empty())
      continue;
    View from = k.buffer(op->getOpOperand(result.getResultNumber())) + column, to = k.buffer(result) + column;
    Value sum = k.loop(0, parts, 1, {k.splat(0)}, [&](Value part, Values s) -> Values {
      return {k.addf(s[0], k.load(from + k.mul(part, width), lanes))};
    })[0];
    k.storeMasked(sum, to, k.lanesBelow(column, width));
  }
  return {{Partition::Unit::One, 1, chunks}, 0};
}

// Each chunk owns a block of columns and processes the rows in order.
static KernelInfo emitNormWeightGrad(KernelBuilder &k, NormWeightGradOp op) {
  const int64_t width = op.getX().getType().getFeatures(), lanes = k.lanes(), vectors = 4, block = vectors * lanes;
  const int64_t chunks = (width + block - 1) / block;
  const bool wantsWeight = !op.getDweight().use_empty(), wantsBias = op.getDbias() && !op.getDbias().use_empty();
  View dy = k.rowsOf(op.getDyMutable()), x = k.rowsOf(op.getXMutable()), stats = k.rowsOf(op.getStatsMutable());
  Value columns = k.mul(k.chunk, block);
  auto emit = [&](int64_t used) {
    const int64_t n = (used + lanes - 1) / lanes;
    const Values zeros(2 * n, k.splat(0));
    Values sums = k.loop(0, k.rowCount(), 1, zeros, [&](Value row, Values s) {
      View statsRow = stats.row(row);
      Value means = k.broadcast(k.load(statsRow));
      Value rs = k.broadcast(k.load(statsRow + 1));
      View dyRow = dy.row(row) + columns, xRow = x.row(row) + columns;
      for (int64_t v = 0; v < n; ++v) {
        Value d = k.load(dyRow + v * lanes, lanes);
        Value c = k.subf(k.load(xRow + v * lanes, lanes), means);
        s[v] = k.fma(d, k.mulf(c, rs), s[v]);
        s[n + v] = k.addf(s[n + v], d);
      }
      return s;
    });
    for (int64_t v = 0; v < n; ++v) {
      const int64_t part = std::min(lanes, used - v * lanes);
      if (wantsWeight)
        k.storePart(sums[v], k.buffer(op.getDweight()) + columns + v * lanes, part);
      if (wantsBias)
        k.storePart(sums[n + v], k.buffer(op.getDbias()) + columns + v * lanes, part);
    }
  };
  if (width % block == 0)
    emit(block);
  else
    k.when(k.less(k.chunk, chunks - 1), [&] { emit(block); }, [&] { emit(width % block); });
  return {{Partition::Unit::One, 1, chunks}, 0};
}

void attachNormKernels(MLIRContext &context) { attachKernels<emitSumParts, emitNormWeightGrad>(context); }

} // namespace xfc
