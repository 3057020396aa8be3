// Turns unfused ops into kernels with upstream dialects and passes alone: the slow path that the kernels of CPU/ are
// compared with, end to end.
#pragma once

#include "CPU/Image.h"

namespace xfc {

// Attaches PlainOpInterface to the unfused ops of the dialect.
void registerPlainLowerings(mlir::DialectRegistry &registry);

class PlainTarget : public ImageTarget {
public:
  using ImageTarget::ImageTarget;

  void addDialects(mlir::DialectRegistry &registry) const override;
  // Every kernel is a single chunk. Throws Error for a fused op, which has no plain lowering.
  KernelInfo emit(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  std::optional<Packing> packs(mlir::Operation *, unsigned) const override { return std::nullopt; }
  PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name,
                    mlir::ModuleOp code) const override;
  void addLowering(mlir::OpPassManager &manager) const override;
};

} // namespace xfc
