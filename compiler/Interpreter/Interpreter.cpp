// Evaluates a function: turns its inputs into its results.
#include "Interpreter.h"
#include "Evaluators.h"
#include "Support.h"

using namespace mlir;

#include "Interpreter/EvaluableInterface.cpp.inc"

namespace xfc {

void registerEvaluators(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, XFCDialect *) {
    attachElementwiseEvaluators(*context);
    attachLinearEvaluators(*context);
    attachNormEvaluators(*context);
    attachAttentionEvaluators(*context);
    attachLossEvaluators(*context);
    attachEmbeddingEvaluators(*context);
    attachCandidatesEvaluators(*context);
    attachOptimizerEvaluators(*context);
    attachRecurrenceEvaluators(*context);
  });
}

std::vector<int64_t> extentsOf(Type type, const xfc_shape &shape) { return zeros(shape, type).shape; }

static std::string text(ArrayRef<int64_t> extents) {
  std::string result = "[";
  for (size_t i = 0; i < extents.size(); ++i)
    result += (i ? ", " : "") + std::to_string(extents[i]);
  return result + "]";
}

FailureOr<SmallVector<Tensor>> evaluate(func::FuncOp function, const xfc_shape &shape, ArrayRef<Tensor> inputs) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return function.emitOpError("must have one block to be evaluated"), failure();
  if (inputs.size() != function.getNumArguments())
    return function.emitOpError("takes ") << function.getNumArguments() << " inputs, found " << inputs.size(),
           failure();
  for (auto [i, input] : llvm::enumerate(inputs)) {
    std::vector<int64_t> expected = extentsOf(function.getArgument(i).getType(), shape);
    if (input.shape != expected)
      return function.emitOpError("input ") << i << " must be " << text(expected) << ", found " << text(input.shape),
             failure();
  }
  SmallVector<Tensor> results;
  if (failed(evaluateRegion(shape, function.getBody(), inputs, results)))
    return failure();
  return results;
}

} // namespace xfc
