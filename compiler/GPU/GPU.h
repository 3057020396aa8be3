// Turns ops into kernels for a CUDA GPU: the backend that scheduling calls.
#pragma once

#include "Codegen/Target.h"
#include "PTX.h"
#include "Schedule/Schedule.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>

namespace xfc {

// Attaches GPU kernels to the ops of the dialect. GPUBackend does this for its context.
void registerGPUKernels(mlir::DialectRegistry &registry);

class GPUBackend : public Backend {
public:
  GPUBackend(mlir::MLIRContext &context, const gpu::Architecture &architecture);

  std::string variant(mlir::Operation *op) const override;
  KernelInfo emit(mlir::Operation *op, llvm::StringRef name) override;
  KernelInfo emitMerge(mlir::Operation *op, llvm::StringRef name) override;
  std::optional<FewRowsInfo> emitForFewRows(mlir::Operation *op, llvm::StringRef name) override;
  std::optional<Packing> packs(mlir::Operation *op, unsigned operand) const override;
  PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name) override;

  // The kernels as MLIR.
  std::string print();
  // The kernels as PTX. Lowers them in place, so it can be called only once.
  std::string ptx();

private:
  mlir::OwningOpRef<mlir::ModuleOp> kernels;
  const gpu::Architecture &architecture;
};

const TargetTraits &gpuTraits();

} // namespace xfc
