// The kernels that have one body for every target. The file of each family of ops has a function
//   Partition emitThing(Machine &, ThingOp)
// for each of its ops, and a function that attaches them all.
#pragma once

#include "Codegen/KernelModel.h"
#include "Codegen/Machine.h"
#include <optional>

#include "Kernels/RowKernelInterface.h.inc"

namespace xfc {

// Attaches the bodies, and the functions of elementwise ops. Targets do so for their contexts.
void registerRowKernels(mlir::DialectRegistry &registry);

// Emits the kernel of an op that has such a body or is elementwise; returns nothing for other ops.
std::optional<Partition> emitRowKernel(Machine &, mlir::Operation *);

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
