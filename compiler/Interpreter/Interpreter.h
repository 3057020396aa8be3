// Evaluates xfc functions in f64, in the plainest way: the specification that all generated code is compared with.
#pragma once

#include "Dialect/XFC.h"
#include "Tensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "Interpreter/EvaluableInterface.h.inc"

namespace xfc {

// Gives the ops of the dialect their EvaluableOpInterface; evaluation of a module whose context lacks it fails.
void registerEvaluators(mlir::DialectRegistry &registry);

// The results of `function` on `inputs`, one for each argument, of the batch that `shape` describes.
llvm::FailureOr<llvm::SmallVector<Tensor>> evaluate(mlir::func::FuncOp function, const xfc_shape &shape,
                                                    llvm::ArrayRef<Tensor> inputs);

// The extents a value of `type` has in a batch.
std::vector<int64_t> extentsOf(mlir::Type type, const xfc_shape &shape);

} // namespace xfc
