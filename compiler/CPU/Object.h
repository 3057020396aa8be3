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

// The kernels (func.func in vector, scf, arith, math, memref-free LLVM pointers) down to the LLVM dialect, in place.
// Throws Error when a pass fails: a defect of ours.
void lowerToLLVM(mlir::ModuleOp kernels);

// Adds the image to a lowered module, optimizes, and emits. `image` is the constant's name, `cpu` and `needed` what it
// says of itself (abi.h). With `text`, the optimized LLVM IR is returned instead of the object.
std::vector<char> emitObject(mlir::ModuleOp lowered, const CodeTarget &target, const Module &plan, const std::string &image,
                             const std::string &cpu, const std::string &needed, bool text = false);

// The object that defines xfc_images, best first.
std::vector<char> emitImageTable(const std::vector<std::string> &images);

} // namespace xfc
