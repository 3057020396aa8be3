// A target whose code is compiled to machine code for a CPU: makes the objects of an image, between scheduling and
// linking.
#pragma once

#include "CPU/Builder/InstructionSet.h"
#include "MachineCode/X86.h"
#include "Target/Target.h"
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
}

namespace xfc {

class ImageTarget : public Target {
public:
  using Machine = InstructionSet;
  static constexpr Platform platform = Platform::CPU;
  ImageTarget(const InstructionSet &set, const TargetTraits &traits, const TargetOptions &options)
      : Target(set.name, traits, options), set(set) {}

  // The code as optimized LLVM IR.
  std::string text(mlir::ModuleOp code) const override;
  // One for each function, and that of the image.
  std::vector<ObjectFile> objects(mlir::ModuleOp code, const Module &plan, const std::string &image,
                                  const ObjectCache &cache, Timed timed) const override;
  // Adds the passes that lower what emit() builds to the LLVM dialect.
  virtual void addLowering(mlir::OpPassManager &manager) const = 0;

  const InstructionSet set;

private:
  CodeTarget target() const;
};

} // namespace xfc
