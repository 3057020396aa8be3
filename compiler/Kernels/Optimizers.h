// The steps of elementwise optimizers, for the kernels of every target.
#pragma once

#include "Codegen/CodeBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// The blocks of elements that `op` steps through together, the parameters' first, and the new values of their elements;
// null for those that it does not change. What depends only on hyperparameters is computed once, at the builder's
// insertion point.
struct OptimizerBlocks {
  llvm::SmallVector<View> blocks;
  std::function<Values(llvm::ArrayRef<mlir::Value>)> compute;
};
OptimizerBlocks optimizerBlocks(CodeBuilder &k, OptimizeOp op);

// x, or the nearest number from `least` to `most`.
mlir::Value clamped(CodeBuilder &k, mlir::Value x, mlir::Value least, mlir::Value most);

} // namespace xfc
