// Declares the interface through which the plain backend lowers an op.
#ifndef XFC_PLAIN_PLAININTERFACE_TD
#define XFC_PLAIN_PLAININTERFACE_TD

include "mlir/IR/OpBase.td"

def PlainOpInterface : OpInterface<"PlainOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that can be lowered to upstream dialects: the slow path that kernels are compared with, end to end. Fused ops
    do not have the interface: the unfused program computes the same with ops that do.
  }];
  let methods = [InterfaceMethod<"Builds the body of the op's plain kernel.", "void", "lowerPlain", (ins "::xfc::PlainBuilder &":$b)>];
}

#endif
