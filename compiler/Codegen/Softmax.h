// The formulas of softmax and of the losses built on it, shared by the kernels of every target.
#pragma once

#include "CodeBuilder.h"

namespace xfc {

// Replaces minus infinity in maxima: below every score and logit, but finite, so that no difference is NaN.
constexpr double lowest = -1e30;

// The reference that is subtracted in exponents: the maximum so far. While only minus infinity has been seen, it is 0,
// which makes every exponential zero.
inline mlir::Value softmaxReference(CodeBuilder &k, mlir::Value maximum) {
  return k.select(k.lessf(maximum, lowest / 2), 0, maximum);
}

// scale / sum, or 0 where no key was seen.
inline mlir::Value softmaxScale(CodeBuilder &k, mlir::Value sum, double scale = 1) {
  mlir::Value factor = k.divf(scale, sum);
  return k.select(k.lessf(0, sum), factor, 0);
}

// ds = p (dp - sum), where sum is that of p dp over the keys.
inline mlir::Value softmaxGrad(CodeBuilder &k, mlir::Value dp, mlir::Value p, mlir::Value sum) {
  return k.mulf(p, k.subf(dp, sum));
}

// dx = dy - exp(y) sum, where sum is that of dy.
inline mlir::Value logSoftmaxGrad(CodeBuilder &k, mlir::Value dy, mlir::Value y, mlir::Value sum) {
  return k.subf(dy, k.mulf(k.exp(y), sum));
}

} // namespace xfc
