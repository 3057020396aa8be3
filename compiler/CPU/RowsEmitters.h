// The emitters: each writes the kernel of one op and returns how its work is cut.
#pragma once

#include "Dialect/XFC.h"
#include "RowsBuilder.h"
#include "Schedule/Schedule.h"

namespace xfc {

// The kernel of any op declared here; nothing for another op.
std::optional<Backend::KernelInfo> emitRowsKernel(RowsBuilder &, mlir::Operation *);

Backend::KernelInfo emitAdd(RowsBuilder &, AddOp);
Backend::KernelInfo emitMultiply(RowsBuilder &, MultiplyOp);
Backend::KernelInfo emitActivation(RowsBuilder &, ActivationOp);
Backend::KernelInfo emitActivationGrad(RowsBuilder &, ActivationGradOp);
Backend::KernelInfo emitDropout(RowsBuilder &, DropoutOp);
Backend::KernelInfo emitFill(RowsBuilder &, FillOp);
Backend::KernelInfo emitScale(RowsBuilder &, ScaleOp);
Backend::KernelInfo emitMask(RowsBuilder &, MaskOp);
Backend::KernelInfo emitCacheWrite(RowsBuilder &, CacheWriteOp);
Backend::KernelInfo emitAddPositions(RowsBuilder &, AddPositionsOp);
Backend::KernelInfo emitEmbedding(RowsBuilder &, EmbeddingOp);
Backend::KernelInfo emitEmbeddingGrad(RowsBuilder &, EmbeddingGradOp);
Backend::KernelInfo emitPositionsGrad(RowsBuilder &, PositionsGradOp);
Backend::KernelInfo emitNorm(RowsBuilder &, NormOp);
Backend::KernelInfo emitAddNorm(RowsBuilder &, AddNormOp);
Backend::KernelInfo emitNormGrad(RowsBuilder &, NormGradOp);
Backend::KernelInfo emitNormWeightGrad(RowsBuilder &, NormWeightGradOp);
Backend::KernelInfo emitScores(RowsBuilder &, ScoresOp);
Backend::KernelInfo emitSoftmax(RowsBuilder &, SoftmaxOp);
Backend::KernelInfo emitSoftmaxGrad(RowsBuilder &, SoftmaxGradOp);
Backend::KernelInfo emitCombine(RowsBuilder &, CombineOp);
Backend::KernelInfo emitCombineTransposed(RowsBuilder &, CombineTransposedOp);
Backend::KernelInfo emitAttention(RowsBuilder &, AttentionOp);
Backend::KernelInfo emitAttentionGrad(RowsBuilder &, AttentionGradOp);
Backend::KernelInfo emitLogSoftmax(RowsBuilder &, LogSoftmaxOp);
Backend::KernelInfo emitLogSoftmaxGrad(RowsBuilder &, LogSoftmaxGradOp);
Backend::KernelInfo emitNll(RowsBuilder &, NllOp);
Backend::KernelInfo emitNllGrad(RowsBuilder &, NllGradOp);
Backend::KernelInfo emitCrossEntropy(RowsBuilder &, CrossEntropyOp);
Backend::KernelInfo emitCrossEntropyGrad(RowsBuilder &, CrossEntropyGradOp);
Backend::KernelInfo emitSquareSum(RowsBuilder &, SquareSumOp);
Backend::KernelInfo emitClipFactor(RowsBuilder &, ClipFactorOp);
Backend::KernelInfo emitAdam(RowsBuilder &, AdamOp);

// Shared parts. Rows of a chunk that is bound by memory; one vector of an activation and of its gradient.
int64_t rowsPerChunk(int64_t features);
mlir::Value emitActivationVector(RowsBuilder &, ActivationKind, mlir::Value x);
mlir::Value emitActivationGradVector(RowsBuilder &, ActivationKind, mlir::Value dy, mlir::Value x);
Backend::KernelInfo emitPairsDropout(RowsBuilder &, PairsType, double rate);

// Loss, negative log-likelihood and log-sum-exp of one row of `vocabulary` logits; label and smoothing are scalars.
struct RowLoss {
  mlir::Value loss, nll, lse;
};
RowLoss emitCrossEntropyRow(RowsBuilder &, mlir::Value logits, int64_t vocabulary, mlir::Value label,
                            mlir::Value smoothing);

} // namespace xfc
