// Declares the interface through which the reference interpreter evaluates an op.
#ifndef XFC_INTERPRETER_EVALUABLEINTERFACE_TD
#define XFC_INTERPRETER_EVALUABLEINTERFACE_TD

include "mlir/IR/OpBase.td"

def EvaluableOpInterface : OpInterface<"EvaluableOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that the reference interpreter can evaluate, in f64 and as plainly as possible. The evaluation is the op's specification.
  }];
  let methods = [InterfaceMethod<"Computes the results from the operands.", "::llvm::LogicalResult", "evaluate",
                                 (ins "const ::xfc_shape &":$shape, "::llvm::ArrayRef<::xfc::Tensor>":$operands,
                                      "::llvm::SmallVectorImpl<::xfc::Tensor> &":$results)>];
}

#endif
