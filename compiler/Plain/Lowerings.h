// Attaches plain lowerings to the ops of the dialect. The file of each family of ops defines a function
//   void lowerPlainOp(Op, PlainBuilder &)
// for each unfused op, and attaches them all. The kernel of an elementwise op without one is made from its scalar
// function.
#pragma once

#include "Codegen/Elementwise.h"
#include "Dialect/XFC.h"
#include "PlainBuilder.h"

#include "Plain/PlainInterface.h.inc"

namespace xfc {

template <typename Op> struct PlainLowering : PlainOpInterface::ExternalModel<PlainLowering<Op>, Op> {
  void lowerPlain(mlir::Operation *op, PlainBuilder &b) const { lowerPlainOp(mlir::cast<Op>(op), b); }
};

template <typename... Ops> void attachLowerings(mlir::MLIRContext &context) {
  (Ops::template attachInterface<PlainLowering<Ops>>(context), ...);
}

// Makes the kernel of an elementwise op from its scalar function.
void lowerElementwise(PlainBuilder &, mlir::ModuleOp module, ScalarOpInterface);

void attachElementwiseLowerings(mlir::MLIRContext &);
void attachLinearLowerings(mlir::MLIRContext &);
void attachNormLowerings(mlir::MLIRContext &);
void attachAttentionLowerings(mlir::MLIRContext &);
void attachLossLowerings(mlir::MLIRContext &);
void attachEmbeddingLowerings(mlir::MLIRContext &);
void attachCandidatesLowerings(mlir::MLIRContext &);
void attachOptimizerLowerings(mlir::MLIRContext &);
void attachRecurrenceLowerings(mlir::MLIRContext &);

} // namespace xfc
