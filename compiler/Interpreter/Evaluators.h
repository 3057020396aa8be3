// Attaches evaluators to the ops of the dialect. The file of each family of ops defines a function
//   LogicalResult evaluateOp(Op, const xfc_shape &, ArrayRef<Tensor> operands, SmallVectorImpl<Tensor> &results)
// for each op, and attaches them all.
#pragma once

#include "Interpreter.h"

namespace xfc {

template <typename Op> struct Evaluator : EvaluableOpInterface::ExternalModel<Evaluator<Op>, Op> {
  llvm::LogicalResult evaluate(mlir::Operation *op, const xfc_shape &shape, llvm::ArrayRef<Tensor> operands,
                               llvm::SmallVectorImpl<Tensor> &results) const {
    return evaluateOp(mlir::cast<Op>(op), shape, operands, results);
  }
};

template <typename... Ops> void attachEvaluators(mlir::MLIRContext &context) {
  (Ops::template attachInterface<Evaluator<Ops>>(context), ...);
}

void attachElementwiseEvaluators(mlir::MLIRContext &);
void attachLinearEvaluators(mlir::MLIRContext &);
void attachNormEvaluators(mlir::MLIRContext &);
void attachAttentionEvaluators(mlir::MLIRContext &);
void attachLossEvaluators(mlir::MLIRContext &);
void attachEmbeddingEvaluators(mlir::MLIRContext &);
void attachCandidatesEvaluators(mlir::MLIRContext &);
void attachOptimizerEvaluators(mlir::MLIRContext &);
void attachRecurrenceEvaluators(mlir::MLIRContext &);

} // namespace xfc
