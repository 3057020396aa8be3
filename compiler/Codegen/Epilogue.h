// The epilogue of a product, element by element.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// What an epilogue (xfc.linear) makes of `arguments`, the product and the extras, scalars or vectors alike;
// `dropoutFactor` is what its dropout multiplies by, if it has one. Returns the yielded values.
llvm::SmallVector<mlir::Value> evaluateEpilogue(CodeBuilder &, mlir::Region &epilogue,
                                                llvm::ArrayRef<mlir::Value> arguments, mlir::Value dropoutFactor);

// Its dropout, if it has one.
DropoutOp dropoutOf(mlir::Region &epilogue);

} // namespace xfc
