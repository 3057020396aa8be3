// Turns ops into kernels for a CPU.
#pragma once

#include "CPU/Image.h"

namespace xfc {

// Attaches kernels to the ops of the dialect.
void registerCPUKernels(mlir::DialectRegistry &registry);

class CPUTarget : public ImageTarget {
public:
  using ImageTarget::ImageTarget;

  void addDialects(mlir::DialectRegistry &registry) const override;
  // Tiles of AMX take rows of bf16 as they are. The other forms would widen or pair them again at each use.
  bool takesNarrowRows(mlir::Operation *op, unsigned buffer) const override;
  int64_t strideOf(RowsType rows) const override;
  KernelInfo emit(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  std::optional<Packing> packs(mlir::Operation *op, unsigned operand) const override;
  PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name,
                    mlir::ModuleOp code) const override;
  void addLowering(mlir::OpPassManager &manager) const override;
};

} // namespace xfc
