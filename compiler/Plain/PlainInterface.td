// What the plain path asks of an op.
#ifndef XFC_PLAIN_PLAININTERFACE_TD
#define XFC_PLAIN_PLAININTERFACE_TD

include "mlir/IR/OpBase.td"

def PlainOpInterface : OpInterface<"PlainOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that upstream dialects can compute: the slow path that kernels are compared with, end to end. Fused ops
    have none: what they compute, the unfused program says in ops that have.
  }];
  let methods = [InterfaceMethod<"Builds the body of the op's plain kernel.", "void", "lowerPlain", (ins "::xfc::PlainBuilder &":$b)>];
}

#endif
