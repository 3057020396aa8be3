// The targets that code is generated for, by name.
#pragma once

#include "MachineCode/ObjectCache.h"
#include "MachineCode/ObjectFile.h"
#include "Schedule/Schedule.h"
#include "mlir/Support/Timing.h"
#include <memory>
#include <string>
#include <vector>

namespace xfc {

// One instruction set or GPU architecture: the backend that emits the code of a plan, and what becomes of that code.
class Image {
public:
  using Timed = llvm::function_ref<mlir::TimingScope(const std::string &what)>;
  virtual ~Image() = default;
  virtual const Backend &backend() const = 0;
  // The code as text for the target: LLVM IR, or PTX. Lowers it in place, as objects() does.
  virtual std::string text(mlir::ModuleOp code) const = 0;
  // The objects that define the image with this number among the images of its target.
  virtual std::vector<ObjectFile> objects(mlir::ModuleOp code, const Module &plan, const std::string &number,
                                          const ObjectCache &cache, Timed timed) const = 0;
};

// The image for an instruction set (CPU/InstructionSet.h), and that for a GPU architecture (MachineCode/PTX.h). Throw
// Error for an unknown name. With `checkBounds`, the machine code checks each memory access.
std::unique_ptr<Image> cpuImage(const std::string &name, DType type, bool checkBounds = false);
std::unique_ptr<Image> gpuImage(const std::string &name);
// Whether this is a GPU architecture.
bool isGPU(llvm::StringRef name);
// Whether a machine that can run the code of both should prefer `a`: two instruction sets, or two GPU architectures.
bool isBetter(const std::string &a, const std::string &b);

// Adds the dialects of all targets' code.
void addCodeDialects(mlir::DialectRegistry &registry);

} // namespace xfc
