// A fused xfc module into a plan: passes over the plan dialect, and the plan as the runtime reads it.
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

// No target: a kernel is one chunk, nothing is packed, and there is no code. Passes take it where no other is named.
class NoTarget : public Backend {
public:
  KernelInfo emit(mlir::Operation *, llvm::StringRef) override { return {}; }
  std::optional<Packing> packs(mlir::Operation *, unsigned) const override { return std::nullopt; }
  PackInfo emitPack(mlir::RankedTensorType, Packing, llvm::StringRef) override { return {}; }
};

// The backend must outlive the pass.
std::unique_ptr<mlir::Pass> createOutlineKernels(Backend &backend);
std::unique_ptr<mlir::Pass> createGenerateKernels(Backend &backend);

#define GEN_PASS_REGISTRATION
#include "Schedule/Passes.h.inc"

// All of them in order. Every op of the module's functions must be a kernel or a view.
void addSchedulingPasses(mlir::OpPassManager &manager, Backend &backend);

// `--xfc-schedule`: all of them for no target.
void registerSchedulingPipeline();

// A copy of the module after them. Throws Error where one fails, after its diagnostic.
mlir::OwningOpRef<mlir::ModuleOp> scheduled(mlir::ModuleOp module, Backend &backend);

// The scheduled module as the runtime reads it. Fails with a diagnostic where it says nothing of its model, or is not
// scheduled.
llvm::FailureOr<Module> serialize(mlir::ModuleOp module);

} // namespace xfc
