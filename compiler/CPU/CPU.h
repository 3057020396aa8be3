// Turns ops into kernels for a CPU: the backend that scheduling uses.
#pragma once

#include "CPU/Image.h"
#include "Codegen/Target.h"

namespace xfc {

// Attaches kernels to the ops of the dialect.
void registerCPUKernels(mlir::DialectRegistry &registry);

class CPUBackend : public ImageBackend {
public:
  using ImageBackend::ImageBackend;

  void addDialects(mlir::DialectRegistry &registry) const override;
  // Tiles of AMX take rows of bf16 as they are. The other forms would widen or pair them again at each use.
  bool takesNarrowRows(mlir::Operation *op, unsigned buffer) const override;
  int64_t strideOf(RowsType rows) const override;
  KernelInfo emit(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  std::optional<Packing> packs(mlir::Operation *op, unsigned operand) const override;
  PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name,
                    mlir::ModuleOp code) const override;

private:
  void addLowering(mlir::OpPassManager &manager) const override;
};

const TargetTraits &cpuTraits();
// A CPU with AMX, whose kernels for attention multiply by tiles in bf16.
const TargetTraits &tilesTraits();

} // namespace xfc
