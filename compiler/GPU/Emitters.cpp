// Finds the emitter of an op's kernel.
#include "Emitters.h"
#include "GPU.h"

using namespace mlir;

#include "GPU/GPUKernelInterface.cpp.inc"

namespace xfc {

void registerGPUKernels(DialectRegistry &registry) {
  registerScalars(registry);
  registry.addExtension(+[](MLIRContext *context, XFCDialect *) {
    gpu::attachAttentionKernels(*context);
    gpu::attachAttentionGradKernels(*context);
    gpu::attachCandidatesKernels(*context);
    gpu::attachElementwiseKernels(*context);
    gpu::attachEmbeddingKernels(*context);
    gpu::attachLinearLossKernels(*context);
    gpu::attachLossKernels(*context);
    gpu::attachMatrixKernels(*context);
    gpu::attachNormKernels(*context);
    gpu::attachOptimizerKernels(*context);
    gpu::attachPairsKernels(*context);
    gpu::attachRecurrenceKernels(*context);
  });
}

} // namespace xfc

namespace xfc::gpu {

std::optional<KernelInfo> emitKernel(KernelBuilder &k, Operation *op) {
  if (auto kernel = dyn_cast<GPUKernelOpInterface>(op))
    return kernel.emitKernel(k);
  if (auto scalar = dyn_cast<ScalarOpInterface>(op))
    return emitElementwise(k, scalar);
  return std::nullopt;
}

} // namespace xfc::gpu
