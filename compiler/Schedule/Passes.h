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
  KernelInfo emit(mlir::Operation *, llvm::StringRef) override { return {}; }
  std::optional<Packing> packs(mlir::Operation *, unsigned) const override { return std::nullopt; }
  PackInfo emitPack(mlir::RankedTensorType, Packing, llvm::StringRef) override { return {}; }
};

// The backend must outlive the pass.
std::unique_ptr<mlir::Pass> createOutlineKernels(Backend &backend);
std::unique_ptr<mlir::Pass> createGenerateKernels(Backend &backend);

#define GEN_PASS_REGISTRATION
#include "Schedule/Passes.h.inc"

// Adds all scheduling passes in order. Every op of the module's functions must be a kernel or a view.
void addSchedulingPasses(mlir::OpPassManager &manager, Backend &backend);

// Registers `--xfc-schedule`: all scheduling passes, for no target.
void registerSchedulingPipeline();

// A copy of the module after the scheduling passes. Throws Error if a pass fails, after the pass's diagnostic.
mlir::OwningOpRef<mlir::ModuleOp> scheduled(mlir::ModuleOp module, Backend &backend);

// The scheduled module in the form that the runtime reads. Fails with a diagnostic if the module does not describe its
// model or is not scheduled.
llvm::FailureOr<Module> serialize(mlir::ModuleOp module);

} // namespace xfc
