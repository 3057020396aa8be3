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

// Emits the kernel of an op; returns nothing if it has none, neither of the target's own nor one that all targets
// share.
std::optional<KernelInfo> emitKernel(KernelBuilder &, mlir::Operation *);

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
void attachMatrixKernels(mlir::MLIRContext &);
void attachNormKernels(mlir::MLIRContext &);
void attachPairsKernels(mlir::MLIRContext &);

// Packs a weight [out, in] in bf16, rounded to nearest, ties to even, in rows of packedColumns(in) elements that are
// padded with zeros.
PackInfo emitPackWeight(KernelBuilder &, mlir::RankedTensorType weight);
inline int64_t packedColumns(int64_t columns) { return (columns + 7) / 8 * 8; }

// Whether the op gets the kernel for one query per sequence: it is in a decoding step, without dropout, and only its
// first result is read.
bool isOneQueryAttention(AttentionOp);
KernelInfo emitOneQueryAttention(KernelBuilder &, AttentionOp);

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
