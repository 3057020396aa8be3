// Activations and their gradients, element by element.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// Of scalars and vectors alike.
mlir::Value activationOf(CodeBuilder &, ActivationKind, mlir::Value x);
mlir::Value activationGradOf(CodeBuilder &, ActivationKind, mlir::Value dy, mlir::Value x);

} // namespace xfc
