// What passes ask of an op, so that no pass needs to know op names.
#ifndef XFC_INTERFACES_TD
#define XFC_INTERFACES_TD

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that can give the gradients of its operands from those of its results. Implementations build ops at
    the builder's insertion point, carry the op's location, and add one gradient for each operand that has one.
    A result nobody used has no gradient (`gradients.of` gives null) and counts as 0.
  }];
  let methods = [InterfaceMethod<"Appends the gradient computation.", "::llvm::LogicalResult", "differentiate",
                                 (ins "::mlir::OpBuilder &":$builder, "::xfc::Gradients &":$gradients)>];
}

def EvaluableOpInterface : OpInterface<"EvaluableOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op the reference interpreter can evaluate, in f64, in the plainest way: this is the op's specification.
  }];
  let methods = [InterfaceMethod<"Computes the results from the operands.", "::llvm::LogicalResult", "evaluate",
                                 (ins "const ::xfc_shape &":$shape, "::llvm::ArrayRef<::xfc::Tensor>":$operands,
                                      "::llvm::SmallVectorImpl<::xfc::Tensor> &":$results)>];
}

def KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that becomes one launch of one kernel. Scheduling asks which operand a result may overwrite.
  }];
  let methods = [InterfaceMethod<"The operand whose buffer the result may take over when nobody reads it later, or -1.",
                                 "int64_t", "getInPlaceOperand", (ins "unsigned":$result), "", "return -1;">];
}

def ProductOpInterface : OpInterface<"ProductOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    A product of matrices, whose attribute `compute` says what its operands are rounded to (ComputeType); absent,
    they are multiplied as they are.
  }];
  let methods = [
    InterfaceMethod<"What the operands are rounded to.", "::std::optional<::xfc::ComputeType>", "getCompute">,
    InterfaceMethod<"Sets it.", "void", "setComputeAttr", (ins "::xfc::ComputeTypeAttr":$type)>,
    InterfaceMethod<"Whether the product is defined in `type`.", "bool", "computesIn", (ins "::xfc::ComputeType":$type), "", "return true;">];
  let verify = [{ return ::xfc::verifyComputeType($_op); }];
}

def PlainOpInterface : OpInterface<"PlainOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that upstream dialects can compute: the slow path that kernels are compared with, end to end. Fused ops
    have none: what they compute, the unfused program says in ops that have.
  }];
  let methods = [InterfaceMethod<"Builds the body of the op's plain kernel.", "void", "lowerPlain", (ins "::xfc::PlainBuilder &":$b)>];
}

#endif
