// The kernels of ops: the file of a family has a function
//   Backend::KernelInfo emitThing(KernelBuilder &, ThingOp)
// for each of its ops, which writes the kernel's body and returns how its work is cut, and attaches them all. Below
// that, what families share. Threads and shared memory are the builder's.
#pragma once

#include "Codegen/Elementwise.h"
#include "Codegen/KernelModel.h"
#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Rows.h"
#include "Schedule/Schedule.h"

#include "GPU/GPUKernelInterface.h.inc"

namespace xfc::gpu {

// The kernel of an op that has one of its own, or is elementwise; nothing for another op.
std::optional<Backend::KernelInfo> emitKernel(KernelBuilder &, mlir::Operation *);
Backend::KernelInfo emitElementwise(KernelBuilder &, ScalarOpInterface);

// Attaches the kernels of ops by their emitters.
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

// A weight [out, in] in bf16, to the nearest, ties to even: rows of packedColumns(in) elements, padded with zeros.
Backend::PackInfo emitPackWeight(KernelBuilder &, mlir::RankedTensorType weight);
inline int64_t packedColumns(int64_t columns) { return (columns + 7) / 8 * 8; }

// Whether the op has the kernel for one query a sequence: in a decoding step, where nothing but its result is read and
// nothing dropped.
bool isOneQueryAttention(AttentionOp);
Backend::KernelInfo emitOneQueryAttention(KernelBuilder &, AttentionOp);

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
