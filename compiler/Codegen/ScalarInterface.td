// The interface through which code generation evaluates an elementwise op.
#ifndef XFC_CODEGEN_SCALARINTERFACE_TD
#define XFC_CODEGEN_SCALARINTERFACE_TD

include "mlir/IR/OpBase.td"

def ScalarOpInterface : OpInterface<"ScalarOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op whose result at each position is a function of its operands' elements at that position. The kernels of every
    target and epilogues are built from this one function, and so is the plain path's kernel of an op without a plain
    lowering.
  }];
  let methods = [InterfaceMethod<"Computes the result's element from the operands' elements, which may be scalars or vectors.", "::mlir::Value", "emitScalar",
                                 (ins "::xfc::CodeBuilder &":$k, "::llvm::ArrayRef<::mlir::Value>":$operands)>];
}

#endif
