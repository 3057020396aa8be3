// Evaluates xfc functions in f64, as plainly as possible: the specification that all generated code is compared with.
#pragma once

#include "Dialect/XFC.h"
#include "Tensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "Interpreter/EvaluableInterface.h.inc"

namespace xfc {

// Attaches EvaluableOpInterface to the ops of the dialect. Without it, evaluation fails.
void registerEvaluators(mlir::DialectRegistry &registry);

// The results of `function` for `inputs` (one for each argument) and the batch that `shape` describes.
llvm::FailureOr<llvm::SmallVector<Tensor>> evaluate(mlir::func::FuncOp function, const xfc_shape &shape,
                                                    llvm::ArrayRef<Tensor> inputs);

// The extents of a value of `type` in a batch.
std::vector<int64_t> extentsOf(mlir::Type type, const xfc_shape &shape);

} // namespace xfc
