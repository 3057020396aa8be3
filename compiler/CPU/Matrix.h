// The packed layout that the weights of products come in.
#pragma once

#include "Dialect/XFC.h"
#include "KernelBuilder.h"
#include "Schedule/Schedule.h"

namespace xfc {

// A weight as panels of `panel` columns, [ceil(N / panel)][units of K][panel], zeros beyond N and K. transposed: of
// W^T, so N is the weight's first dimension; otherwise of W. A unit is an element, or two of bf16 (MicroKernel.h).
Backend::PackInfo emitPackWeight(KernelBuilder &, mlir::RankedTensorType weight, Backend::Packing);

// What a packed copy is made of: packs the rows of one panel from `first` on and the columns begin .. end - 1 of a
// weight [rows, columns] into it. `first` and `begin` are multiples of a panel, `end` too or `columns`. The code stands
// once in a module, for weights of all shapes.
void emitPackRows(KernelBuilder &, Backend::Packing, mlir::Value weight, mlir::Value rows, mlir::Value columns,
                  mlir::Value first, mlir::Value begin, mlir::Value end, mlir::Value packed);

} // namespace xfc
