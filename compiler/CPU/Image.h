// A backend whose kernels become one image of an executable: what lies between scheduling and linking.
#pragma once

#include "CPU/InstructionSet.h"
#include "Schedule/Schedule.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>
#include <vector>

namespace xfc {

class ImageBackend : public Backend {
public:
  ImageBackend(mlir::MLIRContext &context, const InstructionSet &set, DType type);

  // The kernels as MLIR.
  std::string print();
  // The kernels and their plan as one object, which defines xfc_image_<suffix>; or its LLVM IR as text.
  std::vector<char> object(const Module &plan, const std::string &suffix, bool text = false);

protected:
  // The kernels down to the LLVM dialect, in place.
  virtual void lower(mlir::ModuleOp kernels) = 0;
  mlir::Type elementType();

  mlir::OwningOpRef<mlir::ModuleOp> kernels;
  InstructionSet set;
  DType type;
};

} // namespace xfc
