// The order of the scheduling passes.
#include "Passes.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassRegistry.h"
#include "support/Error.h"

using namespace mlir;

namespace xfc {

void addSchedulingPasses(OpPassManager &manager, Backend &backend) {
  manager.addPass(createLayOutParameters());
  manager.addPass(createOutlineKernels(backend));
  manager.addPass(createGenerateKernels(backend));
  manager.addPass(createAssignBuffers());
  manager.addPass(createPackWeights());
}

void registerSchedulingPipeline() {
  static NoTarget none;
  PassPipelineRegistration<>("xfc-schedule",
                             "Schedules a fused module for no target: the passes from lay-out-parameters to "
                             "pack-weights",
                             [](OpPassManager &manager) { addSchedulingPasses(manager, none); });
}

OwningOpRef<ModuleOp> scheduled(ModuleOp module, Backend &backend) {
  OwningOpRef<ModuleOp> plan = module.clone();
  PassManager manager(module.getContext());
  addSchedulingPasses(manager, backend);
  manager.enableVerifier(false); // once, after all passes
  if (failed(manager.run(*plan)) || failed(verify(*plan)))
    throw Error("compile: the program cannot be scheduled; see the message above");
  return plan;
}

Module schedule(ModuleOp module, Backend &backend) {
  FailureOr<Module> plan = serialize(*scheduled(module, backend));
  if (failed(plan))
    throw Error("compile: the plan cannot be serialized; see the message above");
  return *plan;
}

} // namespace xfc
