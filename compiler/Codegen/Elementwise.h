// Elementwise ops as functions of numbers, which every target's kernels share.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"

#include "Codegen/ScalarInterface.h.inc"

namespace xfc {

// Gives elementwise ops their ScalarOpInterface. Backends do so for their contexts.
void registerScalars(mlir::DialectRegistry &registry);

// What an epilogue (xfc.linear) makes of `arguments`, the product and the extras, scalars or vectors alike;
// `dropoutFactor` is what its dropout multiplies by, if it has one. Returns the yielded values.
llvm::SmallVector<mlir::Value> evaluateEpilogue(CodeBuilder &, mlir::Region &epilogue,
                                                llvm::ArrayRef<mlir::Value> arguments, mlir::Value dropoutFactor);

// Its dropout, if it has one.
DropoutOp dropoutOf(mlir::Region &epilogue);

} // namespace xfc
