// The epilogue of a product, element by element.
#pragma once

#include "CodeBuilder.h"
#include "mlir/IR/Region.h"

namespace xfc {

// What an epilogue (xfc.linear) makes of `arguments`, the product and the extras, scalars or vectors alike; `dropoutFactor` is what its dropout
// multiplies by, if it has one. Returns the yielded values.
llvm::SmallVector<mlir::Value> evaluateEpilogue(CodeBuilder &, mlir::Region &epilogue, llvm::ArrayRef<mlir::Value> arguments, mlir::Value dropoutFactor);

// The rate of its dropout, 0 if it has none.
double dropoutRateOf(mlir::Region &epilogue);

} // namespace xfc
