// For developers: the GPU kernels of the ops of a .mlir file, as PTX.
#include "Dialect/XFC.h"
#include "GPU/GPU.h"
#include "Schedule/Kernels.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "support/Error.h"
#include <CLI/CLI.hpp>
#include <set>

using namespace mlir;

// Each kernel of the file once, under the name a plan would give it, and a comment that says how its work is cut.
static void print(const std::string &file, const std::string &arch) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<xfc::XFCDialect, func::FuncDialect>();
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(file, &context);
  if (!module)
    throw xfc::Error(file + ": not a module of the xfc dialect; see the message above");
  xfc::GPUBackend backend(context, xfc::gpu::Architecture::named(arch));
  std::set<std::string> keys;
  module->walk([&](Operation *op) {
    if (!isa<xfc::KernelOpInterface>(op) || !isa<func::FuncOp>(op->getParentOp()) ||
        !keys.insert(xfc::kernelKey(op) + backend.variant(op)).second)
      return;
    std::string name = xfc::kernelName(op);
    if (const std::string variant = backend.variant(op); !variant.empty())
      name += "_" + variant;
    if (keys.size() > 1)
      name += "_" + std::to_string(keys.size());
    const xfc::Backend::KernelInfo info = backend.emit(op, name);
    std::printf("// %s: %lld threads, %lld bytes of shared memory\n", name.c_str(),
                static_cast<long long>(info.threads), static_cast<long long>(info.scratch));
    if (info.chunkBytes)
      backend.emitMerge(op, name + "_merge");
    if (xfc::isDecodingStep(op))
      backend.emitForFewRows(op, name + "_few_rows");
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (auto packing = backend.packs(op, i))
        backend.emitPack(cast<RankedTensorType>(op->getOperand(i).getType()), *packing, name + "_pack");
  });
  std::printf("%s", backend.ptx().c_str());
}

int main(int argc, char **argv) {
  CLI::App app("the GPU kernels of the ops of a .mlir file, as PTX");
  std::string file, arch = "sm_80";
  app.add_option("file", file, "a module of the xfc dialect; - is standard input")->required();
  app.add_option("--arch", arch, "the architecture: sm_80, sm_90a, ..")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    print(file, arch);
  } catch (const xfc::Error &error) {
    std::fprintf(stderr, "xfc-ptx: error: %s\n", error.what());
    return 1;
  }
}
