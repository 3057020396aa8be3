// The attributes that all norm ops share.
#pragma once

#include "XFC.h"

namespace xfc {

struct NormSpec {
  bool rms, unbiased, epsInStd;
  double eps;
  template <typename Op> static NormSpec of(Op op) {
    return {op.getKind() == NormKind::rms, op.getUnbiased(), op.getEpsInStd(), op.getEps().convertToDouble()};
  }
  double divisor(int64_t n) const { return unbiased ? n - 1 : n; }
};

} // namespace xfc
