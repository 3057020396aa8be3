// Emitters of matrix products.
#pragma once

#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Schedule/Schedule.h"

namespace xfc::gpu {

Backend::KernelInfo emitLinear(KernelBuilder &, LinearOp);
Backend::KernelInfo emitLinearInputGrad(KernelBuilder &, LinearInputGradOp);
Backend::KernelInfo emitLinearWeightGrad(KernelBuilder &, LinearWeightGradOp);

} // namespace xfc::gpu
