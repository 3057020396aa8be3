// The order of the scheduling passes.
#include "Passes.h"
#include "mlir/IR/Verifier.h"
#include "support/Error.h"

using namespace mlir;

namespace xfc {

void addKernelPasses(OpPassManager &manager, const Backend &backend) {
  manager.addPass(createAssignTypes(backend));
  manager.addPass(createOutlineKernels(backend));
  manager.addPass(createGenerateKernels(backend));
}

void addSchedulingPasses(OpPassManager &manager, const Backend &backend) {
  manager.addPass(createLayOutParameters());
  addKernelPasses(manager, backend);
  manager.addPass(createAssignBuffers(backend));
  manager.addPass(createPackWeights());
}

OwningOpRef<ModuleOp> scheduled(ModuleOp module, const Backend &backend,
                                llvm::function_ref<void(PassManager &)> prepare) {
  OwningOpRef<ModuleOp> plan = module.clone();
  PassManager manager(module.getContext());
  addSchedulingPasses(manager, backend);
  manager.enableVerifier(false); // once, after all passes
  prepare(manager);
  if (failed(manager.run(*plan)) || failed(verify(*plan)))
    throw Error("compile: the program cannot be scheduled; see the message above");
  return plan;
}

} // namespace xfc
