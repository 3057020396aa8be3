// The formulas of norms (xfc.norm, xfc.norm_grad), shared by the kernels of every target.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/Norm.h"

namespace xfc {

// The norm of rows of `width` features. Each target sums over a row in its own way; the formulas that are applied to
// the sums, and to each feature (a scalar or a vector), are here.
struct NormFormulas {
  template <typename Op>
  NormFormulas(Op op, int64_t width)
      : spec(NormSpec::of(op)), width(width), count(spec.unbiased ? width - 1 : width), layer(!spec.rms) {}

  const NormSpec spec;
  const int64_t width;
  const int64_t count; // divisor of the sum of squares; 0: the variance is 0
  const bool layer;    // whether the mean is subtracted

  mlir::Value mean(CodeBuilder &k, mlir::Value sum) const { return k.mulf(sum, 1.0 / width); }
  // `squares` is the sum of squares of x - mean.
  mlir::Value variance(CodeBuilder &k, mlir::Value squares) const {
    return count ? k.mulf(squares, 1.0 / count) : k.scalar(0);
  }
  // r = 1 / sqrt(variance + eps), or 1 / (sqrt(variance) + eps).
  mlir::Value reciprocal(CodeBuilder &k, mlir::Value variance) const {
    mlir::Value eps = k.scalar(spec.eps);
    return k.divf(1, spec.epsInStd ? k.addf(k.sqrt(variance), eps) : k.sqrt(k.addf(variance, eps)));
  }
  // y = c r w + b, with c = x - mean; `bias` may be null.
  mlir::Value result(CodeBuilder &k, mlir::Value c, mlir::Value r, mlir::Value weight, mlir::Value bias) const {
    mlir::Value y = k.mulf(k.mulf(c, r), weight);
    return bias ? k.addf(y, bias) : y;
  }

  // Whether slopeFactor needs the sum of squares.
  bool needsSquares() const { return count && spec.epsInStd; }
  // The factor of c sum(g c) in the gradient. `squares` computes the sum of squares if it is needed.
  mlir::Value slopeFactor(CodeBuilder &k, mlir::Value r, const std::function<mlir::Value()> &squares) const {
    if (!count)
      return k.scalar(0);
    if (!spec.epsInStd) {
      mlir::Value share = k.mulf(r, 1.0 / count);
      return k.mulf(k.mulf(r, r), share);
    }
    mlir::Value std = k.sqrt(variance(k, squares())), positive = k.lessf(0, std);
    mlir::Value divisor = k.select(positive, std, 1);
    mlir::Value quotient = k.divf(k.mulf(k.mulf(r, r), 1.0 / count), divisor);
    return k.select(positive, quotient, 0);
  }
  // dx = r g - slope c, where g is dy w, less its mean if the mean of x is subtracted.
  mlir::Value inputGrad(CodeBuilder &k, mlir::Value r, mlir::Value g, mlir::Value slope, mlir::Value c) const {
    mlir::Value along = k.mulf(slope, c);
    return k.subf(k.mulf(r, g), along);
  }
};

} // namespace xfc
