// A backend whose kernels become one image of an executable: what lies between scheduling and linking.
#pragma once

#include "CPU/InstructionSet.h"
#include "CPU/Object.h"
#include "CPU/ObjectCache.h"
#include "Codegen/MachineCode.h"
#include "Schedule/Schedule.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>
#include <vector>

namespace xfc {

class ImageBackend : public Backend {
public:
  ImageBackend(mlir::MLIRContext &context, const InstructionSet &set, DType type);
  // From now on, the code checks each access to memory.
  void checkBounds() { checksBounds = true; }

  // The kernels as MLIR.
  std::string print();
  // The kernels as optimized LLVM IR. Like objects(), this is the last thing asked of a backend: it lowers the kernels
  // in place.
  std::string llvm();
  // The kernels and their plan as objects that belong together and define xfc_image_<suffix>. They are generated side
  // by side where the context has threads, and are the same bytes however many there are, and whether they come from
  // the cache or not.
  std::vector<ObjectFile> objects(const Module &plan, const std::string &suffix, const ObjectCache &cache);

protected:
  // The passes from what emit() builds to the LLVM dialect.
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
