// Emitters of matrix products.
#pragma once

#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Schedule/Schedule.h"

namespace xfc::gpu {

Backend::KernelInfo emitLinear(KernelBuilder &, LinearOp);
Backend::KernelInfo emitLinearInputGrad(KernelBuilder &, LinearInputGradOp);
Backend::KernelInfo emitLinearWeightGrad(KernelBuilder &, LinearWeightGradOp);
Backend::KernelInfo emitLinearCrossEntropy(KernelBuilder &, LinearCrossEntropyOp);
Backend::KernelInfo emitLinearCrossEntropyWithGrad(KernelBuilder &, LinearCrossEntropyWithGradOp);
Backend::KernelInfo emitLinearCandidates(KernelBuilder &, LinearCandidatesOp);

} // namespace xfc::gpu
