// What the reference interpreter asks of an op.
#ifndef XFC_INTERPRETER_EVALUABLEINTERFACE_TD
#define XFC_INTERPRETER_EVALUABLEINTERFACE_TD

include "mlir/IR/OpBase.td"

def EvaluableOpInterface : OpInterface<"EvaluableOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op the reference interpreter can evaluate, in f64, in the plainest way: this is the op's specification.
  }];
  let methods = [InterfaceMethod<"Computes the results from the operands.", "::llvm::LogicalResult", "evaluate",
                                 (ins "const ::xfc_shape &":$shape, "::llvm::ArrayRef<::xfc::Tensor>":$operands,
                                      "::llvm::SmallVectorImpl<::xfc::Tensor> &":$results)>];
}

#endif
