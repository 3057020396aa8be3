// The interface of ops whose kernels have one body for every machine.
#ifndef XFC_KERNELS_ROWKERNELINTERFACE_TD
#define XFC_KERNELS_ROWKERNELINTERFACE_TD

include "mlir/IR/OpBase.td"

def RowKernelOpInterface : OpInterface<"RowKernelOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op whose kernel is written once, in terms of what a `Machine` offers. A target's own kernel of an op comes first.
    Elementwise ops need neither: their kernels follow from ScalarOpInterface.
  }];
  let methods = [InterfaceMethod<"Emits the body of the kernel at the machine's insertion point, and returns how its work is partitioned.",
                                 "::xfc::Partition", "emitKernel", (ins "::xfc::Machine &":$k)>];
}

#endif
