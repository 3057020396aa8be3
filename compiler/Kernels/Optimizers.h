// The formulas of optimizers, shared by the kernels of every target.
#pragma once

#include "Codegen/CodeBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// The optimizer step of an element, or of a vector of elements: takes the parameter, the gradient times the clipping
// factor and the states, which it updates, and returns the new parameter.
using OptimizerStep =
    std::function<mlir::Value(mlir::Value parameter, mlir::Value gradient, llvm::MutableArrayRef<mlir::Value> states)>;

// The step of `op`. Values that depend only on hyperparameters are computed once, at the builder's insertion point.
// `hyper` returns a hyperparameter as a scalar of the element type.
OptimizerStep optimizerStep(CodeBuilder &k, OptimizeOp op, llvm::function_ref<mlir::Value(llvm::StringRef)> hyper);

// The blocks of elements that `op` steps through together, the parameters' first, and the new values of their elements;
// null for those that it does not change.
struct OptimizerBlocks {
  llvm::SmallVector<View> blocks;
  std::function<Values(llvm::ArrayRef<mlir::Value>)> compute;
};
OptimizerBlocks optimizerBlocks(CodeBuilder &k, OptimizeOp op);

// The tensor that a chunk belongs to, in a launch that takes tensors one by one (xfc_parted_tensor).
struct ChunkOfTensor {
  // Finds it among `tensors`; `hyper` is the buffer whose rows have `hyperCount` elements.
  ChunkOfTensor(CodeBuilder &k, int64_t tensors, BufferIndex hyper, int64_t hyperCount);
  mlir::Value tensor; // its index
  mlir::Value number; // of the chunk among the tensor's
  mlir::Value rows, columns, per, parts, matrix;
  mlir::Value isMatrix; // whether it has two or more dimensions
  mlir::Value updated;  // whether it is updated at all
  View hyper;           // its hyperparameters
  // The rows of the part with the chunk's number.
  mlir::Value begin(CodeBuilder &k) const { return k.mul(number, per); }
  mlir::Value end(CodeBuilder &k) const { return k.min(k.add(begin(k), per), rows); }
};

// The formulas of a rule that factors the second moment. What depends only on hyperparameters is computed once, at the
// builder's insertion point.
class FactoredRule {
public:
  // `indexOf` gives the index of a hyperparameter in the tensor's `hyper`.
  FactoredRule(CodeBuilder &k, const ChunkOfTensor &chunk, std::function<int64_t(llvm::StringRef)> indexOf)
      : k(k), chunk(chunk), indexOf(std::move(indexOf)) {}

  // An element of a gradient after clipping; `factor` is that of the norm.
  using Formula = std::function<mlir::Value(mlir::Value)>;
  Formula clipped(mlir::Value factor) const;
  // A mean of squares, given the old one and the squares of this step, all in f64: scalars, or vectors of them.
  std::function<mlir::Value(mlir::Value mean, mlir::Value square)> newMean() const;
  // The factors of the old parameter and of the unscaled update in what is subtracted from the parameter, as scalars of
  // the element type, given the sums of squares of the parameter and of the update in f64.
  std::pair<mlir::Value, mlir::Value> scales(mlir::Value parameterSquares, mlir::Value updateSquares) const;
  // The new value of an element, given these factors.
  mlir::Value updated(mlir::Value parameter, mlir::Value update, mlir::Value decay, mlir::Value step) const {
    return k.subf(parameter, k.fma(decay, parameter, k.mulf(step, update)));
  }
  // A hyperparameter as a scalar of the element type.
  mlir::Value hyper(llvm::StringRef name) const { return k.load(chunk.hyper + indexOf(name)); }

private:
  CodeBuilder &k;
  const ChunkOfTensor &chunk;
  const std::function<int64_t(llvm::StringRef)> indexOf;
};

// Sums up the f64 in `data`, in their order.
mlir::Value sumOfParts(CodeBuilder &k, const View &data, mlir::Value count);

} // namespace xfc
