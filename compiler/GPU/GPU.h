// Turns ops into kernels for a CUDA GPU, and these into PTX.
#pragma once

#include "MachineCode/PTX.h"
#include "Target/Target.h"
#include <string>

namespace xfc {

// Attaches GPU kernels to the ops of the dialect.
void registerGPUKernels(mlir::DialectRegistry &registry);

class GPUTarget : public Target {
public:
  using Machine = gpu::Architecture;
  static constexpr Platform platform = Platform::CUDA;
  GPUTarget(const gpu::Architecture &architecture, const TargetTraits &traits, const TargetOptions &options)
      : Target(architecture.name, traits, options), architecture(architecture) {}

  void addDialects(mlir::DialectRegistry &registry) const override;
  bool takesNarrowRows(mlir::Operation *, unsigned) const override { return true; }
  std::string variant(mlir::Operation *op) const override;
  KernelInfo emit(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  KernelInfo emitReduction(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  std::vector<SmallKernel> emitSmall(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  bool canBeBody(llvm::StringRef kernel, mlir::ModuleOp code) const override;
  KernelInfo emitPersistent(llvm::ArrayRef<KernelBody> bodies, llvm::StringRef name,
                            mlir::ModuleOp code) const override;
  std::optional<Packing> packs(mlir::Operation *op, unsigned operand) const override;
  PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name,
                    mlir::ModuleOp code) const override;
  std::string text(mlir::ModuleOp code) const override;
  // One object: the PTX, and a cubin if ptxas is found. Without it, the GPU's driver compiles the PTX when it is
  // loaded.
  std::vector<ObjectFile> objects(mlir::ModuleOp code, const Module &plan, const std::string &image,
                                  const ObjectCache &cache, Timed timed) const override;

private:
  // The kernels as PTX, from the cache where it has them.
  std::string compile(mlir::ModuleOp code, const ObjectCache &cache) const;
  const gpu::Architecture architecture;
};

} // namespace xfc
