// The packed layout of the weights of products.
#pragma once

#include "CPU/Builder/KernelBuilder.h"
#include "Dialect/XFC.h"
#include "Target/Target.h"

namespace xfc {

// Emits the kernel that packs a weight into panels of `panel` columns, [ceil(N / panel)][units of K][panel], with zeros
// beyond N and K. If transposed, it packs W^T, so N is the weight's first dimension; otherwise W. A unit is one
// element, two of bf16 or four of int8 (MicroKernel.h).
PackInfo emitPackWeight(KernelBuilder &, mlir::RankedTensorType weight, Packing);

// Packs part of a weight [rows, columns]: a panel's worth of rows, from `first` on, and the columns begin .. end - 1.
// `first` and `begin` are multiples of the panel size, and so is `end` unless it is `columns`. A module has this code
// once, for weights of all shapes. The packed memory begins at a multiple of 64 bytes; the kernel completes the stores.
void emitPackRows(KernelBuilder &, Packing, const View &weight, const Term &rows, const Term &columns,
                  mlir::Value first, const Term &begin, const Term &end, const View &packed);

} // namespace xfc
