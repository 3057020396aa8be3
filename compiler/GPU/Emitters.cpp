// Finds the emitter of an op.
#include "Emitters.h"
#include "Matrix.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace xfc::gpu {

std::optional<Backend::KernelInfo> emitKernel(KernelBuilder &k, Operation *op) {
  using Info = std::optional<Backend::KernelInfo>;
  return llvm::TypeSwitch<Operation *, Info>(op)
      .Case([&](LinearOp op) { return emitLinear(k, op); })
      .Case([&](LinearInputGradOp op) { return emitLinearInputGrad(k, op); })
      .Case([&](LinearWeightGradOp op) { return emitLinearWeightGrad(k, op); })
      .Case([&](LinearCrossEntropyOp op) { return emitLinearCrossEntropy(k, op); })
      .Case([&](LinearCrossEntropyWithGradOp op) { return emitLinearCrossEntropyWithGrad(k, op); })
      .Case([&](LinearCandidatesOp op) { return emitLinearCandidates(k, op); })
      .Case([&](AddOp op) { return emitAdd(k, op); })
      .Case([&](MultiplyOp op) { return emitMultiply(k, op); })
      .Case([&](ActivationOp op) { return emitActivation(k, op); })
      .Case([&](ActivationGradOp op) { return emitActivationGrad(k, op); })
      .Case([&](DropoutOp op) { return emitDropout(k, op); })
      .Case([&](FillOp op) { return emitFill(k, op); })
      .Case([&](ZerosOp op) { return emitZeros(k, op); })
      .Case([&](ScaleOp op) { return emitScale(k, op); })
      .Case([&](MaskOp op) { return emitMask(k, op); })
      .Case([&](CacheWriteOp op) { return emitCacheWrite(k, op); })
      .Case([&](AddPositionsOp op) { return emitAddPositions(k, op); })
      .Case([&](AttentionOp op) { return emitAttention(k, op); })
      .Case([&](AttentionGradOp op) { return emitAttentionGrad(k, op); })
      .Case([&](ScoresOp op) { return emitScores(k, op); })
      .Case([&](SoftmaxOp op) { return emitSoftmax(k, op); })
      .Case([&](SoftmaxGradOp op) { return emitSoftmaxGrad(k, op); })
      .Case([&](CombineOp op) { return emitCombine(k, op); })
      .Case([&](CombineTransposedOp op) { return emitCombineTransposed(k, op); })
      .Case([&](EmbeddingOp op) { return emitEmbedding(k, op); })
      .Case([&](EmbeddingGradOp op) { return emitEmbeddingGrad(k, op); })
      .Case([&](PositionsGradOp op) { return emitPositionsGrad(k, op); })
      .Case([&](NormOp op) { return emitNorm(k, op); })
      .Case([&](AddNormOp op) { return emitAddNorm(k, op); })
      .Case([&](NormGradOp op) { return emitNormGrad(k, op); })
      .Case([&](NormGradWithPartsOp op) { return emitNormGradWithParts(k, op); })
      .Case([&](NormWeightGradOp op) { return emitNormWeightGrad(k, op); })
      .Case([&](SumPartsOp op) { return emitSumParts(k, op); })
      .Case([&](LogSoftmaxOp op) { return emitLogSoftmax(k, op); })
      .Case([&](LogSoftmaxGradOp op) { return emitLogSoftmaxGrad(k, op); })
      .Case([&](NllOp op) { return emitNll(k, op); })
      .Case([&](NllGradOp op) { return emitNllGrad(k, op); })
      .Case([&](CrossEntropyOp op) { return emitCrossEntropy(k, op); })
      .Case([&](CrossEntropyGradOp op) { return emitCrossEntropyGrad(k, op); })
      .Case([&](CandidatesOp op) { return emitCandidates(k, op); })
      .Case([&](MergeCandidatesOp op) { return emitMergeCandidates(k, op); })
      .Case([&](SquareSumOp op) { return emitSquareSum(k, op); })
      .Case([&](ClipFactorOp op) { return emitClipFactor(k, op); })
      .Case([&](AdamOp op) { return emitAdam(k, op); })
      .Default([](Operation *) { return std::nullopt; });
}

} // namespace xfc::gpu
