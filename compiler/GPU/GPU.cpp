// The GPU backend: emits kernels as scheduling requests them.
#include "GPU.h"
#include "Emitters.h"
#include "WarpgroupTile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "support/Error.h"

using namespace mlir;

namespace xfc {

void GPUBackend::addDialects(DialectRegistry &registry) const {
  registerGPUKernels(registry);
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect, LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect,
                  scf::SCFDialect, vector::VectorDialect>();
}

// Takes a kernel's shared memory and threads from its builder. Throws Error if a block cannot have so much memory.
template <typename Info>
static void describe(const gpu::KernelBuilder &builder, const gpu::Architecture &architecture, StringRef name,
                     Info &info) {
  info.scratch = builder.sharedBytes();
  info.threads = builder.threads;
  if (info.scratch > architecture.sharedBytes)
    throw Error("compile: the kernel '" + name.str() + "' needs " + std::to_string(info.scratch) +
                " bytes of shared memory, but a block on " + architecture.name + " has only " +
                std::to_string(architecture.sharedBytes));
}

std::string GPUBackend::variant(Operation *op) const {
  auto kernel = dyn_cast<gpu::GPUKernelOpInterface>(op);
  return kernel ? kernel.getVariant(architecture) : "";
}

KernelInfo GPUBackend::emit(Operation *op, StringRef name, ModuleOp code) const {
  gpu::KernelBuilder builder(code, architecture);
  std::optional<KernelInfo> info;
  builder.kernel(name, [&] { info = gpu::emitKernel(builder, op); });
  if (!info)
    throw Error("compile: there is no CUDA kernel for " + op->getName().getStringRef().str());
  describe(builder, architecture, name, *info);
  return *info;
}

KernelInfo GPUBackend::emitMerge(Operation *op, StringRef name, ModuleOp code) const {
  gpu::KernelBuilder builder(code, architecture);
  KernelInfo info;
  builder.kernel(name, [&] { info = cast<gpu::GPUKernelOpInterface>(op).emitMerge(builder); });
  describe(builder, architecture, name, info);
  return info;
}

std::optional<FewRowsInfo> GPUBackend::emitForFewRows(Operation *op, StringRef name, ModuleOp code) const {
  auto kernel = dyn_cast<gpu::GPUKernelOpInterface>(op);
  const int64_t rows = kernel ? kernel.getFewRows(architecture) : 0;
  if (rows == 0)
    return std::nullopt;
  gpu::KernelBuilder builder(code, architecture);
  KernelInfo info;
  builder.kernel(name, [&] { info = kernel.emitForFewRows(builder); });
  describe(builder, architecture, name, info);
  return FewRowsInfo{info, rows};
}

// A bf16 product reads its weight packed in bf16; an f32 product reads the weight itself.
std::optional<Packing> GPUBackend::packs(Operation *op, unsigned operand) const {
  auto product = dyn_cast<ProductOpInterface>(op);
  if (!product || !product.getCompute() || product.getWeightOperand() != operand)
    return std::nullopt;
  return Packing{/*transposed=*/false, product.getCompute(),
                 cast<gpu::GPUKernelOpInterface>(op).readsBlocks(architecture)};
}

PackInfo GPUBackend::emitPack(RankedTensorType weight, Packing packing, StringRef name, ModuleOp code) const {
  gpu::KernelBuilder builder(code, architecture);
  PackInfo info;
  builder.kernel(name, [&] {
    info = packing.blocks ? gpu::emitPackBlocks(builder, weight) : gpu::emitPackWeight(builder, weight);
  });
  describe(builder, architecture, name, info);
  return info;
}

const TargetTraits &gpuTraits() {
  static const TargetTraits traits = {
      // Kernels read f32 weights unpacked, and the fusion does not apply to others.
      .withoutFusions = {"fuse-packing"},
      // This many blocks nearly fill two waves on 132 multiprocessors; their sums are 1 % of the size of 65,536 rows.
      .normGradParts = 512,
      .computeTypes = {ComputeType::bf16},
      .attentionProducts = 1,
      .refusedDtype = "f64",
      .refusal = "CUDA code cannot compute in f64; use --dtype f32 or bf16, or --target cpu"};
  return traits;
}

} // namespace xfc
