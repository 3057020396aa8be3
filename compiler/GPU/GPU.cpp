// Emits kernels for a GPU, and makes an object of their PTX.
#include "GPU.h"
#include "Emitters.h"
#include "MachineCode/Functions.h"
#include "MachineCode/MachineCode.h"
#include "Persistent.h"
#include "Target/Images.h"
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

void GPUTarget::addDialects(DialectRegistry &registry) const {
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

std::string GPUTarget::variant(Operation *op) const {
  auto kernel = dyn_cast<gpu::GPUKernelOpInterface>(op);
  return kernel ? kernel.getVariant(architecture) : "";
}

KernelInfo GPUTarget::emit(Operation *op, StringRef name, ModuleOp code) const {
  gpu::KernelBuilder builder(code, architecture);
  std::optional<KernelInfo> info;
  builder.kernel(name, [&] { info = gpu::emitKernel(builder, op); });
  if (!info)
    throw Error("compile: there is no CUDA kernel for " + op->getName().getStringRef().str());
  describe(builder, architecture, name, *info);
  return *info;
}

KernelInfo GPUTarget::emitReduction(Operation *op, StringRef name, ModuleOp code) const {
  gpu::KernelBuilder builder(code, architecture);
  KernelInfo info;
  builder.kernel(name, [&] { info = cast<gpu::GPUKernelOpInterface>(op).emitReduction(builder); });
  describe(builder, architecture, name, info);
  return info;
}

std::vector<SmallKernel> GPUTarget::emitSmall(Operation *op, StringRef name, ModuleOp code) const {
  auto kernel = dyn_cast<gpu::GPUKernelOpInterface>(op);
  if (!kernel)
    return {};
  std::vector<SmallKernel> variants;
  for (auto [i, rows] : llvm::enumerate(kernel.getSmallRows(architecture))) {
    SmallKernel variant{name.str() + (i > 0 ? std::to_string(i + 1) : ""), {}, rows};
    gpu::KernelBuilder builder(code, architecture);
    builder.kernel(variant.name, [&] { variant.kernel = kernel.emitSmall(builder, i); });
    describe(builder, architecture, variant.name, variant.kernel);
    variants.push_back(std::move(variant));
  }
  return variants;
}

bool GPUTarget::canBeBody(StringRef kernel, ModuleOp code) const {
  auto function = code.lookupSymbol<LLVM::LLVMFuncOp>(kernel);
  return function && gpu::canBeBody(function);
}

KernelInfo GPUTarget::emitPersistent(ArrayRef<KernelBody> bodies, StringRef name, ModuleOp code) const {
  gpu::KernelBuilder builder(code, architecture);
  KernelInfo info;
  builder.kernel(name, [&] { info = gpu::emitPersistent(builder, bodies, code); });
  describe(builder, architecture, name, info);
  return info;
}

// A bf16 product reads its weight packed in bf16; an f32 product reads the weight itself.
std::optional<Packing> GPUTarget::packs(Operation *op, unsigned operand) const {
  auto product = dyn_cast<ProductOpInterface>(op);
  if (!product || !product.getCompute() || product.getWeightOperand() != operand)
    return std::nullopt;
  return Packing{/*transposed=*/false, product.getCompute(),
                 cast<gpu::GPUKernelOpInterface>(op).readsBlocks(architecture)};
}

PackInfo GPUTarget::emitPack(RankedTensorType weight, Packing packing, StringRef name, ModuleOp code) const {
  gpu::KernelBuilder builder(code, architecture);
  PackInfo info;
  builder.kernel(name, [&] {
    info = packing.blocks ? gpu::emitPackBlocks(builder, weight) : gpu::emitPackWeight(builder, weight);
  });
  describe(builder, architecture, name, info);
  return info;
}

std::string GPUTarget::compile(ModuleOp code, const ObjectCache &cache) const {
  return gpu::joinPTX(compileFunctions(code, cache,
                                       {.machine = {"PTX", architecture.name, architecture.features},
                                        .addLowering = addLoweringToLLVM,
                                        .emit = [&](ModuleOp part) { return gpu::emitPTX(part, architecture); }}));
}

std::string GPUTarget::text(ModuleOp code) const { return compile(code, ObjectCache("")); }

std::vector<ObjectFile> GPUTarget::objects(ModuleOp code, const Module &plan, const std::string &image,
                                           const ObjectCache &cache, Timed timed) const {
  DeviceCode device{name, {}, {}};
  {
    TimingScope timing = timed("PTX for " + name);
    device.ptx = compile(code, cache);
  }
  if (const std::optional<std::string> ptxas = gpu::findPtxas()) {
    TimingScope timing = timed("cubin for " + name);
    const std::string version = cache ? gpu::versionOf(*ptxas) : "";
    const ObjectFile cubin = cache.findOr({"cubin", name, version, device.ptx}, [&] {
      const std::vector<uint8_t> made = gpu::assemble(*ptxas, device.ptx, architecture);
      return ObjectFile(made.begin(), made.end());
    });
    device.cubin.assign(cubin.begin(), cubin.end());
  }
  return {emitDeviceImage(device, plan, image)};
}

} // namespace xfc
