// The module that kernels are emitted into, and the object at the end.
#include "Image.h"
#include "Object.h"

using namespace mlir;

namespace xfc {

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

std::vector<char> ImageBackend::object(const Module &plan, const std::string &suffix, bool text) {
  lower(*kernels);
  return emitObject(*kernels, {set.cpu, set.features, static_cast<int>(set.vectorBytes * 8), set.tune}, plan, "xfc_image_" + suffix, set.name, set.needed, text);
}

} // namespace xfc
