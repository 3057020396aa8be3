// Ops into kernels for a CPU: the backend that scheduling asks, and the objects that come of it.
#pragma once

#include "CPU/InstructionSet.h"
#include "Schedule/Schedule.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>
#include <vector>

namespace xfc {

class CPUBackend : public Backend {
public:
  CPUBackend(mlir::MLIRContext &context, const InstructionSet &set, DType type);

  KernelInfo emit(mlir::Operation *op, llvm::StringRef name) override;
  bool packs(mlir::Operation *op, unsigned operand, bool &transposed) const override;
  PackInfo emitPack(mlir::RankedTensorType weight, bool transposed, llvm::StringRef name) override;

  // The kernels as MLIR.
  std::string print();
  // The kernels and their plan as one object, which defines xfc_image_<suffix>; or its LLVM IR as text.
  std::vector<char> object(const Module &plan, const std::string &suffix, bool text = false);

private:
  mlir::Type elementType();

  mlir::OwningOpRef<mlir::ModuleOp> kernels;
  InstructionSet set;
  DType type;
};

} // namespace xfc
