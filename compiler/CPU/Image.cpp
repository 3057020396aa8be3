// Turns the code of a plan into the objects of an image.
#include "Image.h"
#include "MachineCode/Functions.h"
#include "MachineCode/MachineCode.h"
#include "Target/Images.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace xfc {

CodeTarget ImageTarget::target() const {
  return {set.cpu, set.features, static_cast<int>(set.vectorBytes * 8), set.tune, options.checkBounds};
}

std::string ImageTarget::text(ModuleOp code) const {
  PassManager manager(code.getContext());
  addLowering(manager);
  runLowering(manager, code);
  return printKernels(code, target());
}

std::vector<ObjectFile> ImageTarget::objects(ModuleOp code, const Module &plan, const std::string &image,
                                             const ObjectCache &cache, Timed timed) const {
  TimingScope timing = timed("machine code for " + name);
  llvm::StringSet<> names;
  for (auto function : code.getOps<func::FuncOp>())
    if (!function.isExternal())
      names.insert(function.getName());
  const CodeTarget machine = target();
  const std::string vectorBytes = std::to_string(set.vectorBytes);
  std::vector<ObjectFile> objects = compileFunctions(
      code, cache,
      {.machine = {set.name, set.cpu, set.features, set.tune, vectorBytes, options.checkBounds ? "checked" : ""},
       .addLowering = [&](OpPassManager &manager) { addLowering(manager); },
       .emit = [&](ModuleOp part) { return emitKernels(part, names, machine, set.name); }});
  objects.push_back(emitImage(plan, image, set.name, set.needed));
  return objects;
}

} // namespace xfc
