// Finds the emitter of an op.
#include "Emitters.h"
#include "Matrix.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace xfc::gpu {

std::optional<Backend::KernelInfo> emitKernel(KernelBuilder &k, Operation *op) {
  using Info = std::optional<Backend::KernelInfo>;
  return llvm::TypeSwitch<Operation *, Info>(op)
      .Case([&](LinearOp op) { return emitLinear(k, op); })
      .Case([&](LinearInputGradOp op) { return emitLinearInputGrad(k, op); })
      .Case([&](LinearWeightGradOp op) { return emitLinearWeightGrad(k, op); })
      .Case([&](AddOp op) { return emitAdd(k, op); })
      .Case([&](MultiplyOp op) { return emitMultiply(k, op); })
      .Case([&](ActivationOp op) { return emitActivation(k, op); })
      .Case([&](ActivationGradOp op) { return emitActivationGrad(k, op); })
      .Case([&](DropoutOp op) { return emitDropout(k, op); })
      .Case([&](FillOp op) { return emitFill(k, op); })
      .Case([&](ZerosOp op) { return emitZeros(k, op); })
      .Case([&](ScaleOp op) { return emitScale(k, op); })
      .Case([&](MaskOp op) { return emitMask(k, op); })
      .Case([&](CacheWriteOp op) { return emitCacheWrite(k, op); })
      .Case([&](AddPositionsOp op) { return emitAddPositions(k, op); })
      .Default([](Operation *) { return std::nullopt; });
}

} // namespace xfc::gpu
