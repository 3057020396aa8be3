// Ops into kernels for a CPU: the backend that scheduling asks.
#pragma once

#include "CPU/Image.h"

namespace xfc {

class CPUBackend : public ImageBackend {
public:
  CPUBackend(mlir::MLIRContext &context, const InstructionSet &set, DType type);

  KernelInfo emit(mlir::Operation *op, llvm::StringRef name) override;
  bool packs(mlir::Operation *op, unsigned operand, bool &transposed) const override;
  PackInfo emitPack(mlir::RankedTensorType weight, bool transposed, llvm::StringRef name) override;

private:
  void lower(mlir::ModuleOp kernels) override;
};

} // namespace xfc
