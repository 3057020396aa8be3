// Turns ops into kernels for a CUDA GPU: the backend that scheduling calls.
#pragma once

#include "Codegen/Target.h"
#include "MachineCode/PTX.h"
#include "Schedule/Schedule.h"
#include <string>

namespace xfc {

// Attaches GPU kernels to the ops of the dialect.
void registerGPUKernels(mlir::DialectRegistry &registry);

class GPUBackend : public Backend {
public:
  explicit GPUBackend(const gpu::Architecture &architecture) : architecture(architecture) {}

  std::string name() const override { return architecture.name; }
  void addDialects(mlir::DialectRegistry &registry) const override;
  bool takesNarrowRows(mlir::Operation *, unsigned) const override { return true; }
  std::string variant(mlir::Operation *op) const override;
  KernelInfo emit(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  KernelInfo emitMerge(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  std::optional<FewRowsInfo> emitForFewRows(mlir::Operation *op, llvm::StringRef name,
                                            mlir::ModuleOp code) const override;
  std::optional<Packing> packs(mlir::Operation *op, unsigned operand) const override;
  PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name,
                    mlir::ModuleOp code) const override;

private:
  const gpu::Architecture &architecture;
};

const TargetTraits &gpuTraits();

} // namespace xfc
