// The backend: kernels as they are asked for, and the object at the end.
#include "CPU.h"
#include "Dialect/XFC.h"
#include "Emitters.h"
#include "Matrix.h"
#include "Object.h"
#include "core/Error.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace xfc {

CPUBackend::CPUBackend(MLIRContext &context, const InstructionSet &set, DType type) : set(set), type(type) {
  context.loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect, vector::VectorDialect>();
  kernels = ModuleOp::create(UnknownLoc::get(&context));
}

Backend::KernelInfo CPUBackend::emit(Operation *op, llvm::StringRef name) {
  KernelBuilder builder(*kernels, set.vectorBytes, elementType());
  std::optional<KernelInfo> info;
  builder.kernel(name, [&] { info = emitKernel(builder, op); });
  if (!info)
    throw Error("compile: there is no CPU kernel for " + op->getName().getStringRef().str());
  return *info;
}

bool CPUBackend::packs(Operation *op, unsigned operand, bool &transposed) const {
  transposed = isa<LinearOp, LinearCrossEntropyOp>(op);
  return operand == 1 && isa<LinearOp, LinearInputGradOp, LinearCrossEntropyOp>(op);
}

Backend::PackInfo CPUBackend::emitPack(RankedTensorType weight, bool transposed, llvm::StringRef name) {
  KernelBuilder builder(*kernels, set.vectorBytes, elementType());
  PackInfo info;
  builder.kernel(name, [&] { info = emitPackWeight(builder, weight, transposed); });
  return info;
}

Type CPUBackend::elementType() {
  MLIRContext *context = kernels->getContext();
  return type == DType::F64 ? Type(Float64Type::get(context)) : Type(Float32Type::get(context));
}

std::string CPUBackend::print() {
  std::string text;
  llvm::raw_string_ostream(text) << *kernels;
  return text;
}

std::vector<char> CPUBackend::object(const Module &plan, const std::string &suffix, bool text) {
  lowerToLLVM(*kernels);
  return emitObject(*kernels, {set.cpu, set.features, static_cast<int>(set.vectorBytes * 8), set.tune}, plan, "xfc_image_" + suffix, set.name, set.needed, text);
}

} // namespace xfc
