// A backend for a CPU, which also turns the code of a plan into one image of an executable: the step between scheduling
// and linking.
#pragma once

#include "CPU/InstructionSet.h"
#include "MachineCode/ObjectCache.h"
#include "MachineCode/X86.h"
#include "Schedule/Schedule.h"
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
}

namespace xfc {

class ImageBackend : public Backend {
public:
  // With `checksBounds`, the machine code checks each memory access.
  ImageBackend(const InstructionSet &set, DType type, bool checksBounds = false)
      : set(set), type(type), checksBounds(checksBounds) {}
  std::string name() const override { return set.name; }

  // A plan's code as optimized LLVM IR. Like objects(), this lowers it in place.
  std::string llvm(mlir::ModuleOp code) const;
  // A plan and its code as a group of objects that define xfc_image_<suffix>. They are generated in parallel if the
  // context is multithreaded; their bytes depend neither on the number of threads nor on the cache.
  std::vector<ObjectFile> objects(mlir::ModuleOp code, const Module &plan, const std::string &suffix,
                                  const ObjectCache &cache) const;

protected:
  // Adds the passes that lower what emit() builds to the LLVM dialect.
  virtual void addLowering(mlir::OpPassManager &manager) const = 0;

  InstructionSet set;
  DType type;

private:
  CodeTarget target() const;
  bool checksBounds;
};

} // namespace xfc
