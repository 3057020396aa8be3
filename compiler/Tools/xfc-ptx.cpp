// For developers: prints the GPU kernels of the ops in a .mlir file as PTX.
#include "Dialect/XFC.h"
#include "Pipeline/Targets.h"
#include "Plan/PlanDialect.h"
#include "Schedule/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "support/CommandLine.h"
#include "support/Error.h"

using namespace mlir;

// Prints each kernel of the file once, after a comment per kernel with its block size and shared memory.
static void print(const std::string &file, const std::string &arch) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<xfc::XFCDialect, xfc::PlanDialect, func::FuncDialect>();
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(file, &context);
  if (!module)
    throw xfc::Error(file + ": not a module of the xfc dialect; see the message above");
  const std::unique_ptr<xfc::Target> target = xfc::makeTarget(xfc::Platform::CUDA, arch);
  PassManager manager(&context);
  xfc::addKernelPasses(manager, *target);
  if (failed(manager.run(*module)))
    throw xfc::Error(file + ": kernels cannot be generated for it; see the message above");
  for (auto kernel : module->getOps<xfc::KernelOp>())
    if (kernel.getOp())
      std::printf("// %s: %lld threads, %lld bytes of shared memory\n", kernel.getSymName().str().c_str(),
                  static_cast<long long>(kernel.getThreads()), static_cast<long long>(kernel.getScratch()));
  std::printf("%s", target->text(xfc::codeOf(*module)).c_str());
}

static int run(int argc, char **argv) {
  xfc::CommandLine app("the GPU kernels of the ops of a .mlir file, as PTX");
  std::string file, arch = "sm_80";
  app.addOption("file", file, "a module of the xfc dialect; - is standard input").required();
  app.addOption("--arch", arch, "the architecture: sm_80, sm_90a, ..").showDefault();
  app.setWork([&] { print(file, arch); });
  return xfc::runCommandLine(app, argc, argv);
}

int main(int argc, char **argv) {
  return xfc::reportErrors([&] { return run(argc, argv); });
}
