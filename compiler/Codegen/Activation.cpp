// Activations and their gradients, element by element.
#include "Activation.h"

using namespace mlir;

namespace xfc {

static Value logistic(CodeBuilder &k, Value x) {
  return k.divf(k.constant(1, x), k.addf(k.constant(1, x), k.exp(k.subf(k.constant(0, x), x))));
}

// The normal distribution's cumulative function, (1 + erf(x / sqrt(2))) / 2.
static Value normal(CodeBuilder &k, Value x) {
  return k.fma(k.constant(0.5, x), k.erf(k.mulf(x, k.constant(0.70710678118654752440, x))), k.constant(0.5, x));
}

Value activationOf(CodeBuilder &k, ActivationKind kind, Value x) {
  switch (kind) {
  case ActivationKind::relu:
    return k.maxf(x, k.constant(0, x));
  case ActivationKind::gelu:
    return k.mulf(x, normal(k, x));
  case ActivationKind::silu:
    return k.mulf(x, logistic(k, x));
  case ActivationKind::tanh:
    return k.tanh(x);
  }
  llvm_unreachable("every activation is listed");
}

Value activationGradOf(CodeBuilder &k, ActivationKind kind, Value dy, Value x) {
  switch (kind) {
  case ActivationKind::relu:
    return k.select(k.lessf(k.constant(0, x), x), dy, k.constant(0, x));
  case ActivationKind::gelu: {
    // cdf(x) + x pdf(x)
    Value density = k.mulf(k.exp(k.mulf(k.mulf(x, x), k.constant(-0.5, x))), k.constant(0.39894228040143267794, x));
    return k.mulf(dy, k.fma(x, density, normal(k, x)));
  }
  case ActivationKind::silu: {
    Value s = logistic(k, x);
    return k.mulf(dy, k.mulf(s, k.fma(x, k.subf(k.constant(1, x), s), k.constant(1, x))));
  }
  case ActivationKind::tanh: {
    Value t = k.tanh(x);
    return k.mulf(dy, k.subf(k.constant(1, x), k.mulf(t, t)));
  }
  }
  llvm_unreachable("every activation is listed");
}

} // namespace xfc
