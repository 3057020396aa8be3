// The kernels of ops: the file of a family has a function
//   Backend::KernelInfo emitThing(KernelBuilder &, ThingOp)
// for each of its ops, which writes the kernel's body and returns how its work is cut, and attaches them all. Below
// that, what families share.
#pragma once

#include "Codegen/Elementwise.h"
#include "Codegen/KernelModel.h"
#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Schedule/Schedule.h"

#include "CPU/CPUKernelInterface.h.inc"

namespace xfc {

// The kernel of an op that has one of its own, or is elementwise; nothing for another op.
std::optional<Backend::KernelInfo> emitKernel(KernelBuilder &, mlir::Operation *);
Backend::KernelInfo emitElementwise(KernelBuilder &, ScalarOpInterface);

// Attaches the kernels of ops by their emitters.
template <auto... emitters> void attachKernels(mlir::MLIRContext &context) {
  (KernelModel<CPUKernelOpInterface, emitters>::attach(context), ...);
}

void attachAttentionKernels(mlir::MLIRContext &);
void attachAttentionGradKernels(mlir::MLIRContext &);
void attachCandidatesKernels(mlir::MLIRContext &);
void attachElementwiseKernels(mlir::MLIRContext &);
void attachEmbeddingKernels(mlir::MLIRContext &);
void attachLossKernels(mlir::MLIRContext &);
void attachMatrixKernels(mlir::MLIRContext &);
void attachNormKernels(mlir::MLIRContext &);
void attachOptimizerKernels(mlir::MLIRContext &);
void attachPairsKernels(mlir::MLIRContext &);

// Shared parts. Rows of a chunk that is bound by memory.
int64_t rowsPerChunk(int64_t features);
Backend::KernelInfo emitPairsDropout(KernelBuilder &, DropoutOp);

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
// candidateGroup, from token `first` on, minus infinity past the vocabulary's end; excluded ones are moved out of it,
// to `spare`, which is excludedRoom() elements.
struct SlabCandidates {
  mlir::Value tokens, largest, lse;
};
constexpr int64_t candidateGroup = 64;
int64_t excludedRoom(KernelBuilder &, llvm::ArrayRef<int64_t> excluded);
SlabCandidates emitSlabCandidates(KernelBuilder &, mlir::Value row, mlir::Value width, mlir::Value first,
                                  llvm::ArrayRef<int64_t> excluded, mlir::Value spare, int64_t count);
// Stores lists of tokens, which are i32.
void storeTokens(KernelBuilder &, mlir::Value tokens, mlir::Value p);

} // namespace xfc
