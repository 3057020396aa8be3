// The passes over the xfc dialect; Passes.td describes each.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace xfc {
#define GEN_PASS_DECL
#include "Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "Transforms/Passes.h.inc"
} // namespace xfc
