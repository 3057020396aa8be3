// Turns unfused ops into kernels with upstream dialects and passes alone: the slow path that the kernels of CPU/ are
// compared with, end to end.
#pragma once

#include "CPU/Image.h"
#include "Codegen/Target.h"

namespace xfc {

// Attaches PlainOpInterface to the unfused ops of the dialect.
void registerPlainLowerings(mlir::DialectRegistry &registry);

class PlainBackend : public ImageBackend {
public:
  using ImageBackend::ImageBackend;

  void addDialects(mlir::DialectRegistry &registry) const override;
  // Every kernel is a single chunk. Throws Error for a fused op, which has no plain lowering.
  KernelInfo emit(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const override;
  std::optional<Packing> packs(mlir::Operation *, unsigned) const override { return std::nullopt; }
  PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name,
                    mlir::ModuleOp code) const override;

private:
  void addLowering(mlir::OpPassManager &manager) const override;
};

const TargetTraits &plainTraits();

// The two parts of the backend: emitting the kernel of an op at the end of a module, and adding the passes that lower
// it to the LLVM dialect.
void emitPlain(mlir::ModuleOp kernels, mlir::Operation *op, llvm::StringRef name);
void addPlainLowering(mlir::OpPassManager &manager);

} // namespace xfc
