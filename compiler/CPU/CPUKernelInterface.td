// What the CPU backend asks of an op.
#ifndef XFC_CPU_CPUKERNELINTERFACE_TD
#define XFC_CPU_CPUKERNELINTERFACE_TD

include "mlir/IR/OpBase.td"

def CPUKernelOpInterface : OpInterface<"CPUKernelOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that has a kernel of its own. Elementwise ops need none: their kernels follow from ScalarOpInterface.
  }];
  let methods = [InterfaceMethod<[{Writes the body of the kernel at the builder, and returns how the work is cut and the scratch it needs;
                                   nothing where there is no kernel for the op's attributes.}],
                                 "::std::optional<::xfc::Backend::KernelInfo>", "emitKernel", (ins "::xfc::KernelBuilder &":$k)>];
}

#endif
