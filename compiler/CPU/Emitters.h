// The emitters: each writes the kernel of one op and returns how its work is cut.
#pragma once

#include "Codegen/Activation.h"
#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Schedule/Schedule.h"

namespace xfc {

// The kernel of any op declared here; nothing for another op.
std::optional<Backend::KernelInfo> emitKernel(KernelBuilder &, mlir::Operation *);

Backend::KernelInfo emitAdd(KernelBuilder &, AddOp);
Backend::KernelInfo emitMultiply(KernelBuilder &, MultiplyOp);
Backend::KernelInfo emitActivation(KernelBuilder &, ActivationOp);
Backend::KernelInfo emitActivationGrad(KernelBuilder &, ActivationGradOp);
Backend::KernelInfo emitDropout(KernelBuilder &, DropoutOp);
Backend::KernelInfo emitFill(KernelBuilder &, FillOp);
Backend::KernelInfo emitZeros(KernelBuilder &, ZerosOp);
Backend::KernelInfo emitScale(KernelBuilder &, ScaleOp);
Backend::KernelInfo emitMask(KernelBuilder &, MaskOp);
Backend::KernelInfo emitCacheWrite(KernelBuilder &, CacheWriteOp);
Backend::KernelInfo emitAddPositions(KernelBuilder &, AddPositionsOp);
Backend::KernelInfo emitEmbedding(KernelBuilder &, EmbeddingOp);
Backend::KernelInfo emitEmbeddingGrad(KernelBuilder &, EmbeddingGradOp);
Backend::KernelInfo emitPositionsGrad(KernelBuilder &, PositionsGradOp);
Backend::KernelInfo emitNorm(KernelBuilder &, NormOp);
Backend::KernelInfo emitAddNorm(KernelBuilder &, AddNormOp);
Backend::KernelInfo emitNormGrad(KernelBuilder &, NormGradOp);
Backend::KernelInfo emitNormWeightGrad(KernelBuilder &, NormWeightGradOp);
Backend::KernelInfo emitNormGradWithParts(KernelBuilder &, NormGradWithPartsOp);
Backend::KernelInfo emitSumParts(KernelBuilder &, SumPartsOp);
Backend::KernelInfo emitScores(KernelBuilder &, ScoresOp);
Backend::KernelInfo emitSoftmax(KernelBuilder &, SoftmaxOp);
Backend::KernelInfo emitSoftmaxGrad(KernelBuilder &, SoftmaxGradOp);
Backend::KernelInfo emitCombine(KernelBuilder &, CombineOp);
Backend::KernelInfo emitCombineTransposed(KernelBuilder &, CombineTransposedOp);
Backend::KernelInfo emitAttention(KernelBuilder &, AttentionOp);
Backend::KernelInfo emitAttentionGrad(KernelBuilder &, AttentionGradOp);
Backend::KernelInfo emitLogSoftmax(KernelBuilder &, LogSoftmaxOp);
Backend::KernelInfo emitLogSoftmaxGrad(KernelBuilder &, LogSoftmaxGradOp);
Backend::KernelInfo emitNll(KernelBuilder &, NllOp);
Backend::KernelInfo emitNllGrad(KernelBuilder &, NllGradOp);
Backend::KernelInfo emitCrossEntropy(KernelBuilder &, CrossEntropyOp);
Backend::KernelInfo emitCrossEntropyGrad(KernelBuilder &, CrossEntropyGradOp);
Backend::KernelInfo emitCandidates(KernelBuilder &, CandidatesOp);
Backend::KernelInfo emitMergeCandidates(KernelBuilder &, MergeCandidatesOp);
Backend::KernelInfo emitSquareSum(KernelBuilder &, SquareSumOp);
Backend::KernelInfo emitClipFactor(KernelBuilder &, ClipFactorOp);
Backend::KernelInfo emitAdam(KernelBuilder &, AdamOp);

// Shared parts. Rows of a chunk that is bound by memory.
int64_t rowsPerChunk(int64_t features);
Backend::KernelInfo emitPairsDropout(KernelBuilder &, PairsType, double rate);

// Loss, negative log-likelihood and log-sum-exp of one row of `vocabulary` logits; label and smoothing are scalars.
// With the loss's gradient, that of the logits takes their place.
struct RowLoss {
  mlir::Value loss, nll, lse;
};
RowLoss emitCrossEntropyRow(KernelBuilder &, mlir::Value logits, int64_t vocabulary, mlir::Value label,
                            mlir::Value smoothing, mlir::Value dloss);

// maximum + log(sum of exp(x - maximum)) of a row.
mlir::Value emitLogSumExp(KernelBuilder &, mlir::Value row, int64_t width);

// The largest logits of a slab, best first, and its log-sum-exp. `row` holds `width` logits, a multiple of
// candidateGroup, from token `first` on, minus infinity behind the vocabulary's end; excluded ones are moved out of it,
// to `spare`, which is excludedRoom() elements.
struct SlabCandidates {
  mlir::Value tokens, largest, lse;
};
constexpr int64_t candidateGroup = 64;
int64_t excludedRoom(KernelBuilder &, llvm::ArrayRef<int64_t> excluded);
SlabCandidates emitSlabCandidates(KernelBuilder &, mlir::Value row, mlir::Value width, mlir::Value first,
                                  llvm::ArrayRef<int64_t> excluded, mlir::Value spare, int64_t count);
// Of lists of tokens, which are i32.
void storeTokens(KernelBuilder &, mlir::Value tokens, mlir::Value p);

} // namespace xfc
