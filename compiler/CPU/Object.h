// Turns kernels, their plan, and the tables of images into objects.
#pragma once

#include "Codegen/ObjectFile.h"
#include "mlir/IR/BuiltinOps.h"
#include "plan/Plan.h"
#include "llvm/ADT/StringSet.h"
#include <string>
#include <vector>

namespace xfc {

// The machine that LLVM generates code for.
struct CodeTarget {
  std::string cpu, features; // as LLVM names them; features may be empty
  int vectorBits = 256;      // preferred width
  std::string tune = {};     // CPU to schedule instructions for; empty: `cpu`
  bool checkBounds = false;  // whether kernels check each memory access
};

// Compiles each of these lowered modules into an object, in parallel if the context is multithreaded. Those of their
// functions that are in `kernels` become hidden symbols `image`.name. Throws Error if LLVM fails, which is a bug in the
// compiler.
std::vector<ObjectFile> emitKernels(llvm::ArrayRef<mlir::ModuleOp> parts, const llvm::StringSet<> &kernels,
                                    const CodeTarget &target, const std::string &image);
// Lowered kernels as optimized LLVM IR.
std::string printKernels(mlir::ModuleOp kernels, const CodeTarget &target);

// The object that defines the xfc_image `image`, whose kernels emitKernels() compiled; `cpu` and `needed` become its
// fields `cpu` and `features` (abi.h).
ObjectFile emitImage(const Module &plan, const std::string &image, const std::string &cpu, const std::string &needed);

// The kernels of a GPU architecture, already compiled.
struct DeviceCode {
  std::string arch; // for example sm_80
  std::string ptx;
  std::vector<uint8_t> cubin; // may be empty
};
// The object that defines an xfc_device_image under the name `image`.
ObjectFile emitDeviceImage(const DeviceCode &code, const Module &plan, const std::string &image);

// The object that defines xfc_images and xfc_device_images, best first.
ObjectFile emitImageTables(const std::vector<std::string> &images, const std::vector<std::string> &deviceImages);

} // namespace xfc
