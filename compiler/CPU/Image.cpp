// The module that kernels are emitted into, and the objects at the end.
#include "Image.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Pass/PassManager.h"
#include "support/Error.h"
#include "llvm/ADT/StringMap.h"
#include <algorithm>

using namespace mlir;

namespace xfc {

namespace {

// Not the number of cores: the same model gives the same bytes anywhere. Enough for the longest part to be short.
constexpr size_t partsOfAnImage = 16;

// Moves a module's functions into `count` modules inside it, of about as many operations each. A part declares what it
// calls of others.
void split(ModuleOp kernels, size_t count) {
  OpBuilder builder = OpBuilder::atBlockBegin(kernels.getBody());
  std::vector<ModuleOp> parts;
  for (size_t i = 0; i < count; ++i)
    parts.push_back(ModuleOp::create(builder, kernels.getLoc()));

  std::vector<std::pair<size_t, func::FuncOp>> functions; // the largest first
  for (func::FuncOp function : kernels.getOps<func::FuncOp>()) {
    size_t operations = 0;
    function.walk([&](Operation *) { ++operations; });
    functions.emplace_back(operations, function);
  }
  llvm::stable_sort(functions, [](const auto &a, const auto &b) { return a.first > b.first; });
  std::vector<size_t> sizes(count);
  for (auto &[operations, function] : functions) {
    const size_t lightest = std::min_element(sizes.begin(), sizes.end()) - sizes.begin();
    sizes[lightest] += operations;
    function->moveBefore(parts[lightest].getBody(), parts[lightest].getBody()->end());
  }

  llvm::StringMap<FunctionType> types;
  for (auto &[operations, function] : functions)
    types[function.getName()] = function.getFunctionType();
  for (ModuleOp part : parts) {
    std::optional<SymbolTable::UseRange> uses = SymbolTable::getSymbolUses(&part.getBodyRegion());
    assert(uses && "kernels hold no symbols but functions");
    builder.setInsertionPointToEnd(part.getBody());
    for (const SymbolTable::SymbolUse &use : *uses)
      if (StringRef name = use.getSymbolRef().getRootReference().getValue(); !part.lookupSymbol(name)) {
        auto type = types.find(name);
        if (type == types.end())
          throw Error("compile: a kernel calls '" + name.str() + "', which there is not");
        func::FuncOp::create(builder, part.getLoc(), name, type->second).setPrivate();
      }
  }
}

} // namespace

ImageBackend::ImageBackend(MLIRContext &context, const InstructionSet &set, DType type)
    : kernels(ModuleOp::create(UnknownLoc::get(&context))), set(set), type(type) {}

Type ImageBackend::elementType() {
  MLIRContext *context = kernels->getContext();
  return type == DType::F64 ? Type(Float64Type::get(context)) : Type(Float32Type::get(context));
}

std::string ImageBackend::print() {
  std::string text;
  llvm::raw_string_ostream(text) << *kernels;
  return text;
}

CodeTarget ImageBackend::target() const {
  return {set.cpu, set.features, static_cast<int>(set.vectorBytes * 8), set.tune};
}

void ImageBackend::lower(size_t parts) {
  split(*kernels, parts);
  PassManager manager(kernels->getContext());
  addLowering(manager.nest<ModuleOp>());
  runLowering(manager, *kernels);
}

std::string ImageBackend::llvm() {
  lower(1);
  return printKernels(*kernels, target());
}

std::vector<ObjectFile> ImageBackend::objects(const Module &plan, const std::string &suffix) {
  for (const Kernel &kernel : plan.kernels)
    if (!kernels->lookupSymbol(kernel.name))
      throw Error("compile: no code was generated for the kernel '" + kernel.name + "'");
  lower(partsOfAnImage);
  const std::string image = "xfc_image_" + suffix;
  std::vector<ObjectFile> objects = emitKernels(*kernels, target(), image);
  objects.push_back(emitImage(plan, image, set.name, set.needed));
  return objects;
}

} // namespace xfc
