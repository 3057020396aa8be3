// Declares the interface through which the GPU backend gets the kernels of an op.
#ifndef XFC_GPU_GPUKERNELINTERFACE_TD
#define XFC_GPU_GPUKERNELINTERFACE_TD

include "mlir/IR/OpBase.td"

def GPUKernelOpInterface : OpInterface<"GPUKernelOpInterface"> {
  let cppNamespace = "::xfc::gpu";
  let description = [{
    An op with an emitter of its own. Elementwise ops need none: their kernels are made from `ScalarOpInterface`.
  }];
  let methods = [
    InterfaceMethod<[{Emits the body of the kernel at the builder's insertion point, and returns how the work is partitioned. Threads and
                      shared memory are the builder's. Returns nothing if there is no kernel for the op's attributes.}],
                    "::std::optional<::xfc::KernelInfo>", "emitKernel", (ins "::xfc::gpu::KernelBuilder &":$k)>,
    InterfaceMethod<[{Distinguishes the op's kernel on an architecture from those of other ops with the same key, and becomes part of
                      its name.}],
                    "::std::string", "getVariant", (ins "const ::xfc::gpu::Architecture &":$architecture), "", "return {};">,
    InterfaceMethod<"Whether the kernel reads its bf16 weight in blocks (WarpgroupTile.h) instead of rows.",
                    "bool", "readsBlocks", (ins "const ::xfc::gpu::Architecture &":$architecture), "", "return false;">,
    InterfaceMethod<[{The most rows for which each of the kernel's small-M variants, which add in the same order, is faster than the one
                      before it; descending.}],
                    "::llvm::SmallVector<int64_t>", "getSmallRows", (ins "const ::xfc::gpu::Architecture &":$architecture), "", "return {};">,
    InterfaceMethod<"Emits the body of a small-M variant.", "::xfc::KernelInfo", "emitSmall",
                    (ins "::xfc::gpu::KernelBuilder &":$k, "size_t":$variant), "",
                    [{llvm_unreachable("the op has no small-M variant");}]>,
    InterfaceMethod<"Emits the body of the kernel that adds up the partial sums that the first kernel leaves for each chunk of rows.",
                    "::xfc::KernelInfo", "emitReduction", (ins "::xfc::gpu::KernelBuilder &":$k), "",
                    [{llvm_unreachable("the op's kernel leaves no partial sums");}]>];
}

#endif
