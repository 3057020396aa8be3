// Turns the code of a plan into the objects of an image.
#include "Image.h"
#include "MachineCode/MachineCode.h"
#include "Target/Images.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Pass/PassManager.h"
#include "support/Error.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace xfc {

std::vector<ModuleOp> splitFunctions(ModuleOp kernels) {
  llvm::StringMap<FunctionType> types;
  auto functions = llvm::to_vector(kernels.getOps<func::FuncOp>());
  for (func::FuncOp function : functions)
    types[function.getName()] = function.getFunctionType();
  std::vector<ModuleOp> parts;
  OpBuilder builder(kernels.getContext());
  for (func::FuncOp function : functions) {
    if (function.isExternal())
      continue;
    builder.setInsertionPointToEnd(kernels.getBody());
    auto part = parts.emplace_back(ModuleOp::create(builder, kernels.getLoc()));
    function->moveBefore(part.getBody(), part.getBody()->end());
    std::optional<SymbolTable::UseRange> uses = SymbolTable::getSymbolUses(function);
    assert(uses && "kernels hold no symbols but functions");
    builder.setInsertionPointToEnd(part.getBody());
    for (const SymbolTable::SymbolUse &use : *uses)
      if (StringRef name = use.getSymbolRef().getRootReference().getValue(); !part.lookupSymbol(name)) {
        auto type = types.find(name);
        if (type == types.end())
          throw Error("compile: a kernel calls '" + name.str() + "', which does not exist");
        func::FuncOp::create(builder, part.getLoc(), name, type->second).setPrivate();
      }
  }
  return parts;
}

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
  PassManager manager(code.getContext());
  addLowering(manager.nest<ModuleOp>());
  std::string lowering;
  if (cache) {
    llvm::raw_string_ostream stream(lowering);
    manager.printAsTextualPipeline(stream);
  }

  // Kernels in the cache need not be lowered.
  std::vector<ModuleOp> parts = splitFunctions(code), rest;
  std::vector<ObjectFile> objects(parts.size());
  std::vector<std::pair<size_t, std::string>> places; // for each of `rest`: its index in `parts`, and its key
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string key;
    if (cache) {
      std::string text;
      llvm::raw_string_ostream(text) << parts[i];
      key = cache.keyOf({set.name, set.cpu, set.features, set.tune, std::to_string(set.vectorBytes),
                         options.checkBounds ? "checked" : "", lowering, text});
      if (std::optional<ObjectFile> found = cache.find(key)) {
        objects[i] = std::move(*found);
        parts[i].erase();
        continue;
      }
    }
    rest.push_back(parts[i]);
    places.emplace_back(i, key);
  }
  runLowering(manager, code);
  std::vector<ObjectFile> made = emitKernels(rest, names, target(), set.name);
  for (auto &&[object, place] : llvm::zip_equal(made, places)) {
    auto &[i, key] = place;
    if (cache)
      cache.keep(key, object);
    objects[i] = std::move(object);
  }
  objects.push_back(emitImage(plan, image, set.name, set.needed));
  return objects;
}

} // namespace xfc
