// Turns the kernels of a step into one kernel, whose blocks stay until the step has ended and take up one launch after
// the other.
#pragma once

#include "KernelBuilder.h"
#include "Target/Target.h"

namespace xfc::gpu {

// Whether a persistent kernel can run this one. It cannot if its blocks form clusters, or depend on how many there are,
// or have barriers other than that of the whole block: then its code would have to be another one. Nor can it if they
// have more than 256 threads, which would leave too few registers to other bodies.
bool canBeBody(mlir::LLVM::LLVMFuncOp kernel);

// Emits the persistent kernel (xfc_step in abi.h) with copies of these kernels of `code`.
KernelInfo emitPersistent(KernelBuilder &k, llvm::ArrayRef<KernelBody> bodies, mlir::ModuleOp code);

} // namespace xfc::gpu
