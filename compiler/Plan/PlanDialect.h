// The plan dialect: a compiled model as the runtime will run it, before it is serialized.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "plan/Plan.h"

namespace xfc {

// The module inside a plan that holds the code of its kernels: for each kernel and pack kernel, a function of its name.
constexpr llvm::StringLiteral codeName = "code";
// The attribute of that module that names its target: x86-64-v3, sm_90a.
constexpr llvm::StringLiteral targetAttr = "plan.target";
// Null if there is no code.
mlir::ModuleOp codeOf(mlir::ModuleOp plan);
// The type that a plan's products multiply in: f32, f64 or bf16. Programs that are variants for another type have it in
// their names.
std::string computeOf(mlir::ModuleOp plan);

} // namespace xfc

#include "PlanDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "PlanAttributes.h.inc"
#define GET_OP_CLASSES
#include "PlanOps.h.inc"
