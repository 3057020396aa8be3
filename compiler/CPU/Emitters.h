// The emitters of kernels. The file of each family of ops has a function
//   KernelInfo emitThing(KernelBuilder &, ThingOp)
// for each of its ops, which emits the kernel's body and returns its partition, and a function that attaches them all.
// The functions that several families share are declared below.
#pragma once

#include "CPU/Builder/KernelBuilder.h"
#include "Codegen/Elementwise.h"
#include "Codegen/KernelModel.h"
#include "Codegen/LossTargets.h"
#include "Dialect/XFC.h"
#include "Target/Target.h"

#include "CPU/CPUKernelInterface.h.inc"

namespace xfc {

// Emits the kernel of an op; returns nothing if it has none, neither of the target's own nor one that all targets
// share.
std::optional<KernelInfo> emitKernel(KernelBuilder &, mlir::Operation *);

// Attaches emitters to their ops.
template <auto... emitters> void attachKernels(mlir::MLIRContext &context) {
  (KernelModel<CPUKernelOpInterface, emitters>::attach(context), ...);
}

void attachAttentionKernels(mlir::MLIRContext &);
void attachAttentionGradKernels(mlir::MLIRContext &);
void attachCandidatesKernels(mlir::MLIRContext &);
void attachElementwiseKernels(mlir::MLIRContext &);
void attachEmbeddingKernels(mlir::MLIRContext &);
void attachLinearKernels(mlir::MLIRContext &);
void attachLinearLossKernels(mlir::MLIRContext &);
void attachLinearWeightGradKernels(mlir::MLIRContext &);
void attachOptimizerKernels(mlir::MLIRContext &);
void attachPairsKernels(mlir::MLIRContext &);

// Shared parts. Rows per chunk of a memory-bound kernel.
int64_t rowsPerChunk(int64_t features);

// Loss, negative log-likelihood and log-sum-exp of one row of `vocabulary` logits. If the loss's gradient `dloss` is
// given, the gradient of the logits overwrites them; of logits that are stored in a narrower type than is computed in,
// it is computed in `wide` first, which has room for a row, and rounded once.
RowLoss emitCrossEntropyRow(KernelBuilder &, const View &logits, int64_t vocabulary, const RowTarget &target,
                            mlir::Value dloss, const View &wide = {});

// maximum + log(sum of exp(x - maximum)) of a row, and its sum if it is wanted.
std::pair<mlir::Value, mlir::Value> emitLogSumExp(KernelBuilder &, const View &row, int64_t width,
                                                  bool withSum = false);

// The `count` largest logits of a slab, best first, and its log-sum-exp. `row` holds `width` logits, a multiple of
// candidateGroup, from token `first` on, padded with minus infinity past the vocabulary's end. Excluded logits are
// moved to `spare`, which has excludedRoom() elements; if it is null, they do not count for the log-sum-exp.
struct SlabCandidates {
  mlir::Value tokens, largest, lse;
};
constexpr int64_t candidateGroup = 64;
int64_t excludedRoom(KernelBuilder &, llvm::ArrayRef<int64_t> excluded);
SlabCandidates emitSlabCandidates(KernelBuilder &, const View &row, mlir::Value width, mlir::Value first,
                                  llvm::ArrayRef<int64_t> excluded, const View &spare, int64_t count);

} // namespace xfc
