// Emitters of matrix products.
#pragma once

#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Schedule/Schedule.h"

namespace xfc::gpu {

// Whether an op is one of those that have a kernel for warpgroups, and the architecture has them: it reads its weight
// in blocks (WarpgroupTile.h).
bool byWarpgroups(const Architecture &architecture, mlir::Operation *op);

// For any number of rows, or the one that is faster up to fewRowsOf() rows (0: never).
Backend::KernelInfo emitLinear(KernelBuilder &, LinearOp, bool fewRows = false);
int64_t fewRowsOf(LinearOp);
Backend::KernelInfo emitLinearInputGrad(KernelBuilder &, LinearInputGradOp);
// The rows at once, or chunk by chunk, which the second adds up.
Backend::KernelInfo emitLinearWeightGrad(KernelBuilder &, LinearWeightGradOp);
Backend::KernelInfo emitLinearWeightGradMerge(KernelBuilder &, LinearWeightGradOp);
Backend::KernelInfo emitLinearCrossEntropy(KernelBuilder &, LinearCrossEntropyOp);
Backend::KernelInfo emitLinearCrossEntropyWithGrad(KernelBuilder &, LinearCrossEntropyWithGradOp);
Backend::KernelInfo emitLinearCandidates(KernelBuilder &, LinearCandidatesOp);

} // namespace xfc::gpu
