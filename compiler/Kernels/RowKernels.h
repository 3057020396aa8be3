// The kernels that have one body for every target. The file of each family of ops has a function
//   Partition emitThing(Machine &, ThingOp)
// for each of its ops, and a function that attaches them all.
#pragma once

#include "Codegen/KernelModel.h"
#include "Codegen/LossTargets.h"
#include "Codegen/Machine.h"
#include <optional>

#include "Kernels/RowKernelInterface.h.inc"

namespace xfc {

// Attaches the bodies, and the functions of elementwise ops. Targets do so for their contexts.
void registerRowKernels(mlir::DialectRegistry &registry);

// Emits the kernel of an op that has such a body or is elementwise; returns nothing for other ops.
std::optional<Partition> emitRowKernel(Machine &, mlir::Operation *);

// Stores, at `to`, the gradient of a row's logits, given their log-sum-exp and the gradient of the row's loss. The
// logits may lie there, too.
void storeLossGradient(CodeBuilder &, LongRows &, const View &logits, const RowTarget &, mlir::Value lse,
                       mlir::Value dloss, const View &to);

template <auto... emitters> void attachRowKernels(mlir::MLIRContext &context) {
  (KernelModel<RowKernelOpInterface, emitters>::attach(context), ...);
}

void attachElementwiseBodies(mlir::MLIRContext &);
void attachLossBodies(mlir::MLIRContext &);
void attachNormBodies(mlir::MLIRContext &);
void attachOptimizerBodies(mlir::MLIRContext &);
void attachPairsBodies(mlir::MLIRContext &);
void attachRecurrenceBodies(mlir::MLIRContext &);

} // namespace xfc
