// Elementwise ops as functions of their elements, shared by the kernels of every target.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"

#include "Codegen/ScalarInterface.h.inc"

namespace xfc {

// Attaches ScalarOpInterface to the elementwise ops. Backends do so for their contexts.
void registerScalars(mlir::DialectRegistry &registry);

// Evaluates an epilogue (xfc.linear) on `arguments`, which are the product and the extras, as scalars or vectors.
// `dropoutFactor` is the factor of its dropout, if it has one. Returns the yielded values.
llvm::SmallVector<mlir::Value> evaluateEpilogue(CodeBuilder &, mlir::Region &epilogue,
                                                llvm::ArrayRef<mlir::Value> arguments, mlir::Value dropoutFactor);

// 1 / (1 + exp(-x)).
mlir::Value logistic(CodeBuilder &, mlir::Value x);

// The dropout of an epilogue, or null.
DropoutOp dropoutOf(mlir::Region &epilogue);

} // namespace xfc
