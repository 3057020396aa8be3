// Emits kernels for a CPU.
#include "CPU.h"
#include "CPU/Products/Packing.h"
#include "Dialect/Values.h"
#include "Dialect/XFC.h"
#include "Emitters.h"
#include "MachineCode/MachineCode.h"
#include "Rows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "support/Error.h"

using namespace mlir;

namespace xfc {

void CPUTarget::addDialects(DialectRegistry &registry) const {
  registerCPUKernels(registry);
  registry.insert<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                  vector::VectorDialect>();
}

// Gradients of keys and values that several heads share are summed, head by head, where they are stored.
bool CPUTarget::takesNarrowRows(Operation *op, unsigned buffer) const {
  auto attention = dyn_cast<AttentionGradOp>(op);
  const bool sums = attention && buffer > op->getNumOperands() &&
                    attention.getKeyHeads() < static_cast<int64_t>(attention.getHeads());
  return set.amx && !sums;
}

// A tile is loaded and a half group of results stored a cache line of each row at a time. Rows that begin at multiples
// of 1 KB would have these lines in a few sets of the caches, which cannot hold those of a block of rows.
int64_t CPUTarget::strideOf(RowsType rows) const {
  constexpr int64_t line = 64, spread = 1024;
  const int64_t bytes = elementBytes(rows), features = rows.getFeatures();
  const bool isSpread = !set.amx || !rows.getElementType().isBF16() || features * bytes % spread != 0;
  return isSpread ? features : features + line / bytes;
}

KernelInfo CPUTarget::emit(Operation *op, llvm::StringRef name, ModuleOp code) const {
  CPUMachine builder(code, set, elementType(code.getContext(), options.type));
  std::optional<KernelInfo> info;
  builder.kernel(name, [&] { info = emitKernel(builder, op); });
  if (!info)
    throw Error("compile: there is no CPU kernel for " + op->getName().getStringRef().str());
  return *info;
}

std::optional<Packing> CPUTarget::packs(Operation *op, unsigned operand) const {
  auto product = dyn_cast<ProductOpInterface>(op);
  if (!product || product.getWeightOperand() != operand)
    return std::nullopt;
  return Packing{product.getContractedDimension() == 1, product.getCompute()};
}

PackInfo CPUTarget::emitPack(RankedTensorType weight, Packing packing, llvm::StringRef name, ModuleOp code) const {
  CPUMachine builder(code, set, elementType(code.getContext(), options.type));
  PackInfo info;
  builder.kernel(name, [&] { info = emitPackWeight(builder, weight, packing); });
  return info;
}

void CPUTarget::addLowering(OpPassManager &manager) const { addLoweringToLLVM(manager); }

} // namespace xfc
