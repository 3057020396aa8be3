// Kernels, their plan, and the tables of both into objects.
#pragma once

#include "Codegen/ObjectFile.h"
#include "mlir/IR/BuiltinOps.h"
#include "plan/Plan.h"
#include "llvm/ADT/StringSet.h"
#include <string>
#include <vector>

namespace xfc {

// What LLVM is told of the machine.
struct CodeTarget {
  std::string cpu, features; // as LLVM names them; features may be empty
  int vectorBits = 256;      // preferred width
  std::string tune = {};     // CPU to schedule for, if another
  bool checkBounds = false;  // whether kernels check each access to memory
};

// An object of each of these lowered modules, made side by side where the context has threads. Those of their functions
// that are `kernels` are called `image`.name, and an executable does not export them. Throws Error for what LLVM cannot
// do: a defect of ours.
std::vector<ObjectFile> emitKernels(llvm::ArrayRef<mlir::ModuleOp> parts, const llvm::StringSet<> &kernels,
                                    const CodeTarget &target, const std::string &image);
// Lowered kernels as optimized LLVM IR.
std::string printKernels(mlir::ModuleOp kernels, const CodeTarget &target);

// The object that defines the xfc_image `image`, whose kernels emitKernels() made; `cpu` and `needed` are what it says
// of itself (abi.h).
ObjectFile emitImage(const Module &plan, const std::string &image, const std::string &cpu, const std::string &needed);

// A GPU architecture's kernels, compiled by somebody else.
struct DeviceCode {
  std::string arch; // sm_80
  std::string ptx;
  std::vector<uint8_t> cubin; // may be empty
};
// The object that defines an xfc_device_image under the name `image`.
ObjectFile emitDeviceImage(const DeviceCode &code, const Module &plan, const std::string &image);

// The object that defines xfc_images and xfc_device_images, best first.
ObjectFile emitImageTables(const std::vector<std::string> &images, const std::vector<std::string> &deviceImages);

} // namespace xfc
