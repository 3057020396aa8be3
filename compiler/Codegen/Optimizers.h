// The formulas of optimizers, which every target's kernels share.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// A step of an element, or of a vector of them: takes the parameter, the gradient times the clipping factor and the
// states, which it replaces, and gives the new parameter.
using OptimizerStep =
    std::function<mlir::Value(mlir::Value parameter, mlir::Value gradient, llvm::MutableArrayRef<mlir::Value> states)>;

// The step of `op`. What follows from the hyperparameters alone is computed once, where the builder stands: `hyper`
// gives one as a scalar of the element type, and `spread` makes of a scalar what elements are computed with.
OptimizerStep optimizerStep(CodeBuilder &k, OptimizeOp op, llvm::function_ref<mlir::Value(llvm::StringRef)> hyper,
                            llvm::function_ref<mlir::Value(mlir::Value)> spread);

} // namespace xfc
