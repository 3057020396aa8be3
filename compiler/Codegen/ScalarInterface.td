// What code generation asks of an elementwise op.
#ifndef XFC_CODEGEN_SCALARINTERFACE_TD
#define XFC_CODEGEN_SCALARINTERFACE_TD

include "mlir/IR/OpBase.td"

def ScalarOpInterface : OpInterface<"ScalarOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op whose result has, at each place, a function of its operands' numbers at that place. Kernels of every target and
    epilogues are made of this one function, and so is the plain path's kernel of an op without a plain lowering.
  }];
  let methods = [InterfaceMethod<"The number of the result from those of the operands, scalars or vectors alike.", "::mlir::Value", "emitScalar",
                                 (ins "::xfc::CodeBuilder &":$k, "::llvm::ArrayRef<::mlir::Value>":$operands)>];
}

#endif
