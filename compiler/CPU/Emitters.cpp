// Dispatches ops to their kernels.
#include "Emitters.h"
#include "CPU.h"
#include "Kernels/RowKernels.h"

using namespace mlir;

#include "CPU/CPUKernelInterface.cpp.inc"

namespace xfc {

void registerCPUKernels(DialectRegistry &registry) {
  registerRowKernels(registry);
  registry.addExtension(+[](MLIRContext *context, XFCDialect *) {
    attachAttentionKernels(*context);
    attachAttentionGradKernels(*context);
    attachCandidatesKernels(*context);
    attachElementwiseKernels(*context);
    attachEmbeddingKernels(*context);
    attachLinearKernels(*context);
    attachLinearLossKernels(*context);
    attachLinearWeightGradKernels(*context);
    attachOptimizerKernels(*context);
    attachPairsKernels(*context);
  });
}

std::optional<KernelInfo> emitKernel(KernelBuilder &k, Operation *op) {
  if (auto kernel = dyn_cast<CPUKernelOpInterface>(op))
    if (auto info = kernel.emitKernel(k))
      return info;
  if (std::optional<Partition> partition = emitRowKernel(k, op))
    return KernelInfo{*partition, k.scratchBytes()};
  return std::nullopt;
}

} // namespace xfc
