// A backend that turns its kernels into one image of an executable: the step between scheduling and linking.
#pragma once

#include "CPU/InstructionSet.h"
#include "CPU/ObjectCache.h"
#include "MachineCode/X86.h"
#include "Schedule/Schedule.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
}

namespace xfc {

class ImageBackend : public Backend {
public:
  ImageBackend(mlir::MLIRContext &context, const InstructionSet &set, DType type);
  // Makes the generated code check each memory access.
  void checkBounds() { checksBounds = true; }

  // The kernels as MLIR.
  std::string print();
  // The kernels as optimized LLVM IR. Like objects(), this must be the last call to a backend, because it lowers the
  // kernels in place.
  std::string llvm();
  // The kernels and their plan as a group of objects that define xfc_image_<suffix>. They are generated in parallel if
  // the context is multithreaded; their bytes depend neither on the number of threads nor on the cache.
  std::vector<ObjectFile> objects(const Module &plan, const std::string &suffix, const ObjectCache &cache);

protected:
  // Adds the passes that lower what emit() builds to the LLVM dialect.
  virtual void addLowering(mlir::OpPassManager &manager) const = 0;
  mlir::Type elementType();

  mlir::OwningOpRef<mlir::ModuleOp> kernels;
  InstructionSet set;
  DType type;

private:
  CodeTarget target() const;
  bool checksBounds = false;
};

} // namespace xfc
