// The passes over the xfc dialect; Passes.td describes each.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "Dialect/XFC.h"
#include "mlir/Pass/Pass.h"

namespace xfc {
// What Recompute may compute again: what is bound by memory, or whatever lowers the peak.
enum class RecomputeLevel { cheap, most };

namespace attr {
inline constexpr llvm::StringLiteral lossScale = "loss_scale"; // the argument that Differentiate adds: where gradients begin
}

#define GEN_PASS_DECL
#include "Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "Transforms/Passes.h.inc"
} // namespace xfc
