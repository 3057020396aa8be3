// Unfused ops into kernels by upstream dialects and passes alone: the slow path that the generated kernels of CPU/ are
// compared with, end to end.
#pragma once

#include "CPU/Image.h"
#include "Codegen/Target.h"

namespace xfc {

// Gives the unfused ops of the dialect their PlainOpInterface; a PlainBackend does so for its context.
void registerPlainLowerings(mlir::DialectRegistry &registry);

class PlainBackend : public ImageBackend {
public:
  PlainBackend(mlir::MLIRContext &context, const InstructionSet &set, DType type);

  // A kernel is one chunk. Throws Error for a fused op, which has no plain lowering.
  KernelInfo emit(mlir::Operation *op, llvm::StringRef name) override;
  std::optional<Packing> packs(mlir::Operation *, unsigned) const override { return std::nullopt; }
  PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name) override;

private:
  void addLowering(mlir::OpPassManager &manager) const override;
};

const TargetTraits &plainTraits();

// The parts of the backend: the kernel of one op at the end of a module, and the passes on its way to the LLVM dialect.
void emitPlain(mlir::ModuleOp kernels, mlir::Operation *op, llvm::StringRef name);
void addPlainLowering(mlir::OpPassManager &manager);

} // namespace xfc
