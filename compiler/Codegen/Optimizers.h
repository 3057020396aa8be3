// The formulas of optimizers, shared by the kernels of every target.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// The optimizer step of an element, or of a vector of elements: takes the parameter, the gradient times the clipping
// factor and the states, which it updates, and returns the new parameter.
using OptimizerStep =
    std::function<mlir::Value(mlir::Value parameter, mlir::Value gradient, llvm::MutableArrayRef<mlir::Value> states)>;

// The step of `op`. Values that depend only on hyperparameters are computed once, at the builder's insertion point.
// `hyper` returns a hyperparameter as a scalar of the element type; `spread` converts a scalar to the type of the
// elements, for example to a vector.
OptimizerStep optimizerStep(CodeBuilder &k, OptimizeOp op, llvm::function_ref<mlir::Value(llvm::StringRef)> hyper,
                            llvm::function_ref<mlir::Value(mlir::Value)> spread);

} // namespace xfc
