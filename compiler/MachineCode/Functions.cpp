// Compiles the functions of a module of kernels one by one.
#include "Functions.h"
#include "MachineCode.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Threading.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Pass/PassManager.h"
#include "support/Error.h"
#include "llvm/ADT/StringMap.h"
#include <exception>

using namespace mlir;

namespace xfc {

std::vector<ModuleOp> splitFunctions(ModuleOp kernels) {
  llvm::StringMap<Operation *> symbols;
  for (auto symbol : kernels.getOps<SymbolOpInterface>())
    symbols[symbol.getName()] = symbol;
  std::vector<ModuleOp> parts;
  OpBuilder builder(kernels.getContext());
  for (auto function : llvm::to_vector(kernels.getOps<FunctionOpInterface>())) {
    if (function.isExternal())
      continue;
    builder.setInsertionPointToEnd(kernels.getBody());
    auto part = parts.emplace_back(ModuleOp::create(builder, kernels.getLoc()));
    function->moveBefore(part.getBody(), part.getBody()->end());
    std::optional<SymbolTable::UseRange> uses = SymbolTable::getSymbolUses(function);
    assert(uses && "kernels hold no symbols but functions and variables");
    builder.setInsertionPointToEnd(part.getBody());
    for (const SymbolTable::SymbolUse &use : *uses) {
      StringRef name = use.getSymbolRef().getRootReference().getValue();
      if (part.lookupSymbol(name))
        continue;
      Operation *used = symbols.lookup(name);
      if (!used)
        throw Error("compile: a kernel uses '" + name.str() + "', which does not exist");
      if (isa<FunctionOpInterface>(used))
        cast<SymbolOpInterface>(builder.insert(used->cloneWithoutRegions())).setPrivate();
      else
        builder.clone(*used);
    }
  }
  return parts;
}

// The function's text, without the names that its surroundings would give to types and attributes.
static std::string textOf(ModuleOp part) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  part->print(stream, OpPrintingFlags().useLocalScope().assumeVerified());
  return text;
}

static int64_t sizeOf(ModuleOp part) {
  int64_t operations = 0;
  part->walk([&](Operation *) { ++operations; });
  return operations;
}

// Calls emit() for each lowered part, on several threads, and throws the first error. The largest parts come first,
// since a large one at the end would keep one thread busy while the others have nothing left to do.
static std::vector<ObjectFile> emitParts(MLIRContext &context, ArrayRef<ModuleOp> parts,
                                         llvm::function_ref<ObjectFile(ModuleOp)> emit) {
  std::vector<ObjectFile> objects(parts.size());
  std::vector<std::exception_ptr> errors(parts.size());
  registerTranslations(context);
  const llvm::SmallVector<int64_t> sizes = llvm::map_to_vector(parts, sizeOf);
  auto order = llvm::to_vector(llvm::seq<size_t>(0, parts.size()));
  llvm::stable_sort(order, [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  parallelForEach(&context, order, [&](size_t i) {
    try {
      objects[i] = emit(parts[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr &error : errors)
    if (error)
      std::rethrow_exception(error);
  return objects;
}

std::vector<ObjectFile> compileFunctions(ModuleOp kernels, const ObjectCache &cache, const FunctionCompiler &compiler) {
  PassManager manager(kernels.getContext());
  compiler.addLowering(manager.nest<ModuleOp>());
  std::string lowering;
  if (cache) {
    llvm::raw_string_ostream stream(lowering);
    manager.printAsTextualPipeline(stream);
  }

  // Functions in the cache need not be lowered.
  std::vector<ModuleOp> parts = splitFunctions(kernels), rest;
  std::vector<ObjectFile> objects(parts.size());
  std::vector<std::pair<size_t, std::string>> places; // for each of `rest`: its index in `parts`, and its key
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string key;
    if (cache) {
      const std::string text = textOf(parts[i]);
      llvm::SmallVector<StringRef> determining = compiler.machine;
      determining.append({lowering, text});
      key = cache.keyOf(determining);
      if (std::optional<ObjectFile> found = cache.find(key)) {
        objects[i] = std::move(*found);
        parts[i].erase();
        continue;
      }
    }
    rest.push_back(parts[i]);
    places.emplace_back(i, key);
  }
  runLowering(manager, kernels);
  std::vector<ObjectFile> made = emitParts(*kernels.getContext(), rest, compiler.emit);
  for (auto &&[object, place] : llvm::zip_equal(made, places)) {
    auto &[i, key] = place;
    if (cache)
      cache.keep(key, object);
    objects[i] = std::move(object);
  }
  return objects;
}

} // namespace xfc
