// Turns a fused xfc module into a plan: the passes over the plan dialect, and the serialization that the runtime reads.
#pragma once

#include "Plan/PlanDialect.h"
#include "Schedule.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace xfc {
#define GEN_PASS_DECL
#include "Schedule/Passes.h.inc"

// The backend for no target, which passes use by default: each kernel is one chunk, nothing is packed, and no code is
// generated.
class NoTarget : public Backend {
public:
  std::string name() const override { return {}; }
  KernelInfo emit(mlir::Operation *, llvm::StringRef, mlir::ModuleOp) const override { return {}; }
  std::optional<Packing> packs(mlir::Operation *, unsigned) const override { return std::nullopt; }
  PackInfo emitPack(mlir::RankedTensorType, Packing, llvm::StringRef, mlir::ModuleOp) const override { return {}; }
};

// The backend must outlive the passes.
std::unique_ptr<mlir::Pass> createAssignTypes(const Backend &backend);
std::unique_ptr<mlir::Pass> createAssignBuffers(const Backend &backend);
std::unique_ptr<mlir::Pass> createOutlineKernels(const Backend &backend);
std::unique_ptr<mlir::Pass> createGenerateKernels(const Backend &backend);
// Adds these three.
void addKernelPasses(mlir::OpPassManager &manager, const Backend &backend);

#define GEN_PASS_REGISTRATION
#include "Schedule/Passes.h.inc"

// Adds all scheduling passes in order. Every op of the module's functions must be a kernel or a view.
void addSchedulingPasses(mlir::OpPassManager &manager, const Backend &backend);

// A copy of the module after the scheduling passes. The module must describe its model (xfc::attr::model), and every op
// of its functions must be a kernel or a view. Otherwise a diagnostic names the op and Error is thrown: the compiler
// has a bug, or the module was written by hand. `prepare` is given the manager of the passes before they run.
mlir::OwningOpRef<mlir::ModuleOp> scheduled(mlir::ModuleOp module, const Backend &backend,
                                            llvm::function_ref<void(mlir::PassManager &)> prepare);

// The scheduled module in the form that the runtime reads. Fails with a diagnostic if the module does not describe its
// model or is not scheduled.
llvm::FailureOr<Module> serialize(mlir::ModuleOp module);

} // namespace xfc
