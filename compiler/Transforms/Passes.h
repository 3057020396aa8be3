// The passes over the xfc dialect; Passes.td describes each.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace xfc {
// The values that Recompute may recompute: memory-bound ones only, or whatever lowers the peak.
enum class RecomputeLevel { cheap, most };

#define GEN_PASS_DECL
#include "Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "Transforms/Passes.h.inc"

// The name of an argument that is a parameter; empty for any other value and for null.
inline llvm::StringRef parameterName(mlir::Value value) {
  auto argument = llvm::dyn_cast_if_present<mlir::BlockArgument>(value);
  auto function =
      argument ? llvm::dyn_cast<mlir::func::FuncOp>(argument.getOwner()->getParentOp()) : mlir::func::FuncOp();
  if (!function)
    return {};
  auto role = function.getArgAttrOfType<mlir::StringAttr>(argument.getArgNumber(), attr::role);
  auto name = function.getArgAttrOfType<mlir::StringAttr>(argument.getArgNumber(), attr::name);
  return role && name && role.getValue() == attr::parameter ? name.getValue() : llvm::StringRef();
}
} // namespace xfc
