// The order of the scheduling passes.
#include "Passes.h"
#include "mlir/IR/Verifier.h"
#include "support/Error.h"

using namespace mlir;

namespace xfc {

void addKernelPasses(OpPassManager &manager, const Target &target) {
  manager.addPass(createAssignTypes(target));
  manager.addPass(createOutlineKernels(target));
  manager.addPass(createGenerateKernels(target));
}

void addSchedulingPasses(OpPassManager &manager, const Target &target) {
  manager.addPass(createLayOutParameters());
  addKernelPasses(manager, target);
  manager.addPass(createPackInStep());
  manager.addPass(createAssignBuffers(target));
  manager.addPass(createPackWeights());
  manager.addPass(createMakePersistent(target));
}

OwningOpRef<ModuleOp> scheduled(ModuleOp module, const Target &target,
                                llvm::function_ref<void(PassManager &)> prepare) {
  OwningOpRef<ModuleOp> plan = module.clone();
  PassManager manager(module.getContext());
  addSchedulingPasses(manager, target);
  manager.enableVerifier(false); // once, after all passes
  prepare(manager);
  if (failed(manager.run(*plan)) || failed(verify(*plan)))
    throw Error("compile: the program cannot be scheduled; see the message above");
  return plan;
}

} // namespace xfc
