// What the GPU backend asks of an op.
#ifndef XFC_GPU_GPUKERNELINTERFACE_TD
#define XFC_GPU_GPUKERNELINTERFACE_TD

include "mlir/IR/OpBase.td"

def GPUKernelOpInterface : OpInterface<"GPUKernelOpInterface"> {
  let cppNamespace = "::xfc::gpu";
  let description = [{
    An op that has a kernel of its own. Elementwise ops need none: their kernels follow from ScalarOpInterface.
  }];
  let methods = [
    InterfaceMethod<[{Writes the body of the kernel at the builder, and returns how the work is cut and the scratch it needs;
                      nothing where there is no kernel for the op's attributes.}],
                    "::std::optional<::xfc::Backend::KernelInfo>", "emitKernel", (ins "::xfc::gpu::KernelBuilder &":$k)>,
    InterfaceMethod<[{What tells the op's kernel on an architecture from those of other ops with its key, and is part of
                      its name.}],
                    "::std::string", "getVariant", (ins "const ::xfc::gpu::Architecture &":$architecture), "", "return {};">,
    InterfaceMethod<"Whether the kernel reads its weight, in bf16, in blocks (WarpgroupTile.h) and not in rows.",
                    "bool", "readsBlocks", (ins "const ::xfc::gpu::Architecture &":$architecture), "", "return false;">,
    InterfaceMethod<[{Up to how many rows a second kernel is faster, which adds in the same order; 0: there is none.}],
                    "int64_t", "getFewRows", (ins "const ::xfc::gpu::Architecture &":$architecture), "", "return 0;">,
    InterfaceMethod<"Writes the body of that second kernel.", "::xfc::Backend::KernelInfo", "emitForFewRows",
                    (ins "::xfc::gpu::KernelBuilder &":$k), "", [{llvm_unreachable("the op has no kernel for few rows");}]>,
    InterfaceMethod<"Writes the body of the kernel that adds up what the first leaves for each chunk of rows.",
                    "::xfc::Backend::KernelInfo", "emitMerge", (ins "::xfc::gpu::KernelBuilder &":$k), "",
                    [{llvm_unreachable("the op's kernel leaves no parts");}]>];
}

#endif
