// Emitters of matrix products.
#pragma once

#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Schedule/Schedule.h"

namespace xfc::gpu {

// Whether the architecture has a kernel for warpgroups that suits the op's shape and type.
bool suitsWarpgroups(const Architecture &architecture, mlir::Operation *op);
// Whether the op's kernel is that one, which reads its weight in blocks (WarpgroupTile.h). A product of a decoding step
// that has a kernel for few rows is not: wgmma may round otherwise than mma.sync, and a hypothesis is to have the same
// bits however many are beside it. So both its kernels are of mma.sync, for any number of rows.
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
