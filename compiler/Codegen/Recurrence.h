// The formulas of xfc.recurrence and of its gradient, shared by the kernels of every target.
#pragma once

#include "Elementwise.h"

namespace xfc {

// c = f before + (1 - f) x with f = logistic(gate).
inline mlir::Value recurrence(CodeBuilder &k, mlir::Value gate, mlir::Value x, mlir::Value before) {
  mlir::Value change = k.subf(before, x);
  return k.fma(logistic(k, gate), change, x);
}

struct RecurrenceGrad {
  mlir::Value dgate, dx, dbefore;
};

// The gradients of its operands, given dc.
inline RecurrenceGrad recurrenceGrad(CodeBuilder &k, mlir::Value dc, mlir::Value gate, mlir::Value x,
                                     mlir::Value before) {
  mlir::Value f = logistic(k, gate), dx = k.mulf(k.subf(1, f), dc);
  return {k.mulf(k.mulf(f, k.subf(before, x)), dx), dx, k.mulf(f, dc)};
}

} // namespace xfc
