// Finds the emitter of an op's kernel.
#include "Emitters.h"
#include "GPU.h"
#include "Kernels/RowKernels.h"

using namespace mlir;

#include "GPU/GPUKernelInterface.cpp.inc"

namespace xfc {

void registerGPUKernels(DialectRegistry &registry) {
  registerRowKernels(registry);
  registry.addExtension(+[](MLIRContext *context, XFCDialect *) {
    gpu::attachAttentionKernels(*context);
    gpu::attachAttentionGradKernels(*context);
    gpu::attachCandidatesKernels(*context);
    gpu::attachElementwiseKernels(*context);
    gpu::attachEmbeddingKernels(*context);
    gpu::attachLinearLossKernels(*context);
    gpu::attachMatrixKernels(*context);
    gpu::attachNormKernels(*context);
    gpu::attachPairsKernels(*context);
  });
}

} // namespace xfc

namespace xfc::gpu {

std::optional<KernelInfo> emitKernel(KernelBuilder &k, Operation *op) {
  if (auto kernel = dyn_cast<GPUKernelOpInterface>(op))
    if (auto info = kernel.emitKernel(k))
      return info;
  if (std::optional<Partition> partition = emitRowKernel(k, op))
    return KernelInfo{*partition};
  return std::nullopt;
}

} // namespace xfc::gpu
