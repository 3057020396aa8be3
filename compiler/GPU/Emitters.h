// Declares the emitters of GPU kernels. The file of each family of ops defines a function
//   KernelInfo emitThing(KernelBuilder &, ThingOp)
// for each op, which emits the kernel's body and returns how its work is partitioned, and attaches them all. Threads
// and shared memory are the builder's. What several families use follows below.
#pragma once

#include "Codegen/Elementwise.h"
#include "Codegen/KernelModel.h"
#include "Codegen/LossTargets.h"
#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Rows.h"
#include "Target/Target.h"

#include "GPU/GPUKernelInterface.h.inc"

namespace xfc::gpu {

// Emits the kernel of an op that has its own emitter or is elementwise; returns nothing for any other op.
std::optional<KernelInfo> emitKernel(KernelBuilder &, mlir::Operation *);
KernelInfo emitElementwise(KernelBuilder &, ScalarOpInterface);

// Attaches emitters to their ops.
template <auto... emitters> void attachKernels(mlir::MLIRContext &context) {
  (KernelModel<GPUKernelOpInterface, emitters>::attach(context), ...);
}

void attachAttentionKernels(mlir::MLIRContext &);
void attachAttentionGradKernels(mlir::MLIRContext &);
void attachCandidatesKernels(mlir::MLIRContext &);
void attachElementwiseKernels(mlir::MLIRContext &);
void attachEmbeddingKernels(mlir::MLIRContext &);
void attachLinearLossKernels(mlir::MLIRContext &);
void attachLossKernels(mlir::MLIRContext &);
void attachMatrixKernels(mlir::MLIRContext &);
void attachNormKernels(mlir::MLIRContext &);
void attachOptimizerKernels(mlir::MLIRContext &);
void attachPairsKernels(mlir::MLIRContext &);
void attachRecurrenceKernels(mlir::MLIRContext &);

// Packs a weight [out, in] in bf16, rounded to nearest, ties to even, in rows of packedColumns(in) elements that are
// padded with zeros.
PackInfo emitPackWeight(KernelBuilder &, mlir::RankedTensorType weight);
inline int64_t packedColumns(int64_t columns) { return (columns + 7) / 8 * 8; }

// Whether the op gets the kernel for one query per sequence: it is in a decoding step, without dropout, and only its
// first result is read.
bool isOneQueryAttention(AttentionOp);
KernelInfo emitOneQueryAttention(KernelBuilder &, AttentionOp);

// For kernels that have whole rows of logits in memory. All threads of the row's team take part.
//
// lse is maximum + log(sum of exp(x - maximum)) of a row; threadSum is this thread's part of the sum of x.
struct RowSums {
  mlir::Value lse, threadSum;
};
// Tokens that are left out count as minus infinity; feature 0 is token `first` (i32), or token 0.
RowSums emitRowSums(KernelBuilder &, RowInMemory &, const View &row, llvm::ArrayRef<int64_t> leftOut = {},
                    mlir::Value first = {});
// Loss, negative log-likelihood and log-sum-exp of a row of logits, in every thread.
struct RowLoss {
  mlir::Value loss, nll, lse;
};
RowLoss emitCrossEntropyRow(KernelBuilder &, RowInMemory &, const View &logits, const RowTarget &target);
// The gradient of the row's logits, given its log-sum-exp and the loss's gradient; `result` may alias `logits`.
void emitCrossEntropyGradRow(KernelBuilder &, RowInMemory &, const View &logits, const View &result,
                             const RowTarget &target, mlir::Value lse, mlir::Value dloss);

// The top `count` of the numbers that a team's threads see, with their tokens. Each thread keeps a list in registers.
class Candidates {
public:
  Candidates(KernelBuilder &k, int64_t count) : k(k), count(count) {}
  // The empty list, from which a loop starts.
  Values none();
  // The list after inserting a number with its token (i32). It is unchanged if the number is NaN, minus infinity or too
  // small, or if the token is excluded.
  Values with(Values list, mlir::Value number, mlir::Value token, llvm::ArrayRef<int64_t> excluded = {});
  // Merges the lists of all threads; every thread gets the result. Best first, ties broken by the lower token; minus
  // infinity and -1 fill up a list that is too short.
  struct Candidate {
    mlir::Value number, token;
  };
  llvm::SmallVector<Candidate> best(RowTeam &team, Values list);

private:
  KernelBuilder &k;
  const int64_t count;
};

} // namespace xfc::gpu
