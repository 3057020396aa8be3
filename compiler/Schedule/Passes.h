// Turns a fused xfc module into a plan: the passes over the plan dialect, and the serialization that the runtime reads.
#pragma once

#include "Plan/PlanDialect.h"
#include "Target/Target.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace xfc {
#define GEN_PASS_DECL
#include "Schedule/Passes.h.inc"

// The target must outlive the passes. By default they have none (NoTarget).
std::unique_ptr<mlir::Pass> createMakePersistent(const Target &target);
std::unique_ptr<mlir::Pass> createAssignTypes(const Target &target);
std::unique_ptr<mlir::Pass> createAssignBuffers(const Target &target);
std::unique_ptr<mlir::Pass> createOutlineKernels(const Target &target);
std::unique_ptr<mlir::Pass> createGenerateKernels(const Target &target);
// Adds these three.
void addKernelPasses(mlir::OpPassManager &manager, const Target &target);

#define GEN_PASS_REGISTRATION
#include "Schedule/Passes.h.inc"

// Adds all scheduling passes in order. Every op of the module's functions must be a kernel or a view.
void addSchedulingPasses(mlir::OpPassManager &manager, const Target &target);

// A copy of the module after the scheduling passes. The module must describe its model (xfc::attr::model), and every op
// of its functions must be a kernel or a view. Otherwise a diagnostic names the op and Error is thrown: the compiler
// has a bug, or the module was written by hand. `prepare` is given the manager of the passes before they run.
mlir::OwningOpRef<mlir::ModuleOp> scheduled(mlir::ModuleOp module, const Target &target,
                                            llvm::function_ref<void(mlir::PassManager &)> prepare);

// The scheduled module in the form that the runtime reads. Fails with a diagnostic if the module does not describe its
// model or is not scheduled.
llvm::FailureOr<Module> serialize(mlir::ModuleOp module);

} // namespace xfc
