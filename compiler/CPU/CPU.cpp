// The backend: kernels as they are asked for.
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

CPUBackend::CPUBackend(MLIRContext &context, const InstructionSet &set, DType type) : ImageBackend(context, set, type) {
  context.loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect, vector::VectorDialect>();
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
  transposed = isa<LinearOp, LinearCrossEntropyOp, LinearCrossEntropyWithGradOp>(op);
  return operand == 1 && isa<LinearOp, LinearInputGradOp, LinearCrossEntropyOp, LinearCrossEntropyWithGradOp>(op);
}

Backend::PackInfo CPUBackend::emitPack(RankedTensorType weight, bool transposed, llvm::StringRef name) {
  KernelBuilder builder(*kernels, set.vectorBytes, elementType());
  PackInfo info;
  builder.kernel(name, [&] { info = emitPackWeight(builder, weight, transposed); });
  return info;
}

void CPUBackend::lower(ModuleOp kernels) { lowerToLLVM(kernels); }

} // namespace xfc
