// The emitters: each writes the kernel of one op and returns how its work is cut. Threads and shared memory are the builder's.
#pragma once

#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Schedule/Schedule.h"

namespace xfc::gpu {

// The kernel of any op declared here; nothing for another op.
std::optional<Backend::KernelInfo> emitKernel(KernelBuilder &, mlir::Operation *);

// A weight [out, in] in bf16, to the nearest, ties to even: rows of packedColumns(in) elements, zeros behind `in`.
Backend::PackInfo emitPackWeight(KernelBuilder &, mlir::RankedTensorType weight);
inline int64_t packedColumns(int64_t columns) { return (columns + 7) / 8 * 8; }

Backend::KernelInfo emitAdd(KernelBuilder &, AddOp);
Backend::KernelInfo emitMultiply(KernelBuilder &, MultiplyOp);
Backend::KernelInfo emitActivation(KernelBuilder &, ActivationOp);
Backend::KernelInfo emitActivationGrad(KernelBuilder &, ActivationGradOp);
Backend::KernelInfo emitDropout(KernelBuilder &, DropoutOp);
Backend::KernelInfo emitFill(KernelBuilder &, FillOp);
Backend::KernelInfo emitZeros(KernelBuilder &, ZerosOp);
Backend::KernelInfo emitScale(KernelBuilder &, ScaleOp);
Backend::KernelInfo emitMask(KernelBuilder &, MaskOp);
Backend::KernelInfo emitCacheWrite(KernelBuilder &, CacheWriteOp);
Backend::KernelInfo emitAddPositions(KernelBuilder &, AddPositionsOp);

} // namespace xfc::gpu
