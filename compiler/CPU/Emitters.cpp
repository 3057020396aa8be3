// Dispatches ops to their kernels.
#include "Emitters.h"
#include "CPU.h"

using namespace mlir;

#include "CPU/CPUKernelInterface.cpp.inc"

namespace xfc {

void registerCPUKernels(DialectRegistry &registry) {
  registerScalars(registry);
  registry.addExtension(+[](MLIRContext *context, XFCDialect *) {
    attachAttentionKernels(*context);
    attachAttentionGradKernels(*context);
    attachCandidatesKernels(*context);
    attachElementwiseKernels(*context);
    attachEmbeddingKernels(*context);
    attachLossKernels(*context);
    attachMatrixKernels(*context);
    attachNormKernels(*context);
    attachOptimizerKernels(*context);
    attachPairsKernels(*context);
    attachRecurrenceKernels(*context);
  });
}

std::optional<KernelInfo> emitKernel(KernelBuilder &k, Operation *op) {
  if (auto kernel = dyn_cast<CPUKernelOpInterface>(op))
    return kernel.emitKernel(k);
  if (auto scalar = dyn_cast<ScalarOpInterface>(op))
    return emitElementwise(k, scalar);
  return std::nullopt;
}

} // namespace xfc
