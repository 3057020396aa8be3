// The emitters: each writes the kernel of one op and returns how its work is cut. Threads and shared memory are the
// builder's.
#pragma once

#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Rows.h"
#include "Schedule/Schedule.h"

namespace xfc::gpu {

// The kernel of any op declared here; nothing for another op.
std::optional<Backend::KernelInfo> emitKernel(KernelBuilder &, mlir::Operation *);

// A weight [out, in] in bf16, to the nearest, ties to even: rows of packedColumns(in) elements, zeros behind `in`.
Backend::PackInfo emitPackWeight(KernelBuilder &, mlir::RankedTensorType weight);
inline int64_t packedColumns(int64_t columns) { return (columns + 7) / 8 * 8; }

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
Backend::KernelInfo emitAttention(KernelBuilder &, AttentionOp);
// Whether the op has the kernel for one query a sequence: in a decoding step, where nothing but its result is read and
// nothing dropped.
bool isOneQueryAttention(AttentionOp);
Backend::KernelInfo emitOneQueryAttention(KernelBuilder &, AttentionOp);
Backend::KernelInfo emitAttentionGrad(KernelBuilder &, AttentionGradOp);
Backend::KernelInfo emitScores(KernelBuilder &, ScoresOp);
Backend::KernelInfo emitSoftmax(KernelBuilder &, SoftmaxOp);
Backend::KernelInfo emitSoftmaxGrad(KernelBuilder &, SoftmaxGradOp);
Backend::KernelInfo emitCombine(KernelBuilder &, CombineOp);
Backend::KernelInfo emitCombineTransposed(KernelBuilder &, CombineTransposedOp);
Backend::KernelInfo emitEmbedding(KernelBuilder &, EmbeddingOp);
Backend::KernelInfo emitEmbeddingGrad(KernelBuilder &, EmbeddingGradOp);
Backend::KernelInfo emitPositionsGrad(KernelBuilder &, PositionsGradOp);
Backend::KernelInfo emitNorm(KernelBuilder &, NormOp);
Backend::KernelInfo emitAddNorm(KernelBuilder &, AddNormOp);
Backend::KernelInfo emitNormGrad(KernelBuilder &, NormGradOp);
Backend::KernelInfo emitNormGradWithParts(KernelBuilder &, NormGradWithPartsOp);
Backend::KernelInfo emitNormWeightGrad(KernelBuilder &, NormWeightGradOp);
Backend::KernelInfo emitSumParts(KernelBuilder &, SumPartsOp);
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

// Shared parts, for what has whole rows of logits in memory. All threads of the row's team take part.
//
// maximum + log(sum of exp(x - maximum)) of a row, and this thread's part of its sum.
struct RowSums {
  mlir::Value lse, threadSum;
};
RowSums emitRowSums(KernelBuilder &, RowInMemory &, mlir::Value row);
// Loss, negative log-likelihood and log-sum-exp of a row of logits, in every thread; label (i64) and smoothing are
// scalars.
struct RowLoss {
  mlir::Value loss, nll, lse;
};
RowLoss emitCrossEntropyRow(KernelBuilder &, RowInMemory &, mlir::Value logits, mlir::Value label,
                            mlir::Value smoothing);
// Its gradient from the row's log-sum-exp and the loss's gradient; `result` may be `logits`.
void emitCrossEntropyGradRow(KernelBuilder &, RowInMemory &, mlir::Value logits, mlir::Value result, mlir::Value label,
                             mlir::Value smoothing, mlir::Value lse, mlir::Value dloss);

// The largest `count` of the numbers that the threads of a team see, and their tokens: a list a thread, in registers.
class Candidates {
public:
  Candidates(KernelBuilder &k, int64_t count) : k(k), count(count) {}
  // The empty list, which a loop carries.
  Values none();
  // The list with a number and its token (i32) more, if it is no NaN and no minus infinity, not excluded, and among the
  // largest.
  Values with(Values list, mlir::Value number, mlir::Value token, llvm::ArrayRef<int64_t> excluded = {});
  // The largest of all lists in every thread, best first, of equal numbers the lower token first; minus infinity and -1
  // where there are fewer.
  struct Candidate {
    mlir::Value number, token;
  };
  llvm::SmallVector<Candidate> best(RowTeam &team, Values list);

private:
  KernelBuilder &k;
  const int64_t count;
};

} // namespace xfc::gpu
