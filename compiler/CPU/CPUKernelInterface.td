// The interface through which the CPU backend emits an op's kernel.
#ifndef XFC_CPU_CPUKERNELINTERFACE_TD
#define XFC_CPU_CPUKERNELINTERFACE_TD

include "mlir/IR/OpBase.td"

def CPUKernelOpInterface : OpInterface<"CPUKernelOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that has a kernel of its own. Elementwise ops need none: their kernels follow from ScalarOpInterface.
  }];
  let methods = [InterfaceMethod<[{Emits the body of the kernel with the builder, and returns its partition and the scratch it needs, or
                                   nothing if there is no kernel for the op's attributes.}],
                                 "::std::optional<::xfc::KernelInfo>", "emitKernel", (ins "::xfc::KernelBuilder &":$k)>];
}

#endif
