// A module of kernels into machine code.
#pragma once

#include "core/Plan.h"
#include "mlir/IR/BuiltinOps.h"
#include <string>
#include <vector>

namespace xfc {

// What LLVM is told of the machine.
struct CodeTarget {
  std::string cpu, features; // as LLVM names them; features may be empty
  int vectorBits = 256;      // preferred width
  std::string tune = {};     // CPU to schedule for, if another
};

// Adds the image to a lowered module, optimizes, and emits. `image` is the constant's name, `cpu` and `needed` what it
// says of itself (abi.h). With `text`, the optimized LLVM IR is returned instead of the object.
std::vector<char> emitObject(mlir::ModuleOp lowered, const CodeTarget &target, const Module &plan, const std::string &image,
                             const std::string &cpu, const std::string &needed, bool text = false);

// A GPU architecture's kernels, compiled by somebody else.
struct DeviceCode {
  std::string arch; // sm_80
  std::string ptx;
  std::vector<uint8_t> cubin; // may be empty
};
// The object that defines an xfc_device_image under the name `image`.
std::vector<char> emitDeviceImage(const DeviceCode &code, const Module &plan, const std::string &image);

// The object that defines xfc_images and xfc_device_images, best first.
std::vector<char> emitImageTables(const std::vector<std::string> &images, const std::vector<std::string> &deviceImages);

} // namespace xfc
