// Turns kernels in the LLVM dialect into objects for x86-64, in memory.
#pragma once

#include "ObjectFile.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"
#include <memory>
#include <string>

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace xfc {

// The machine that LLVM generates code for.
struct CodeTarget {
  std::string cpu, features; // as LLVM names them; features may be empty
  int vectorBits = 256;      // preferred width
  std::string tune = {};     // CPU to schedule instructions for; empty: `cpu`
  bool checkBounds = false;  // whether kernels check each memory access
};

// Throws Error if LLVM was built without x86-64.
std::unique_ptr<llvm::TargetMachine> machineFor(const CodeTarget &target);

// The symbol of a kernel whose code is for this instruction set: executables that have code for several have one kernel
// of the name for each, and the same kernel has the same symbol in every executable.
std::string symbolOf(llvm::StringRef instructionSet, llvm::StringRef kernel);

// Runs the passes of LLVM that kernels take.
void optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine);
// Compiles a lowered module into an object. Those of its functions that are in `kernels` become hidden symbols. Throws
// Error if LLVM fails, which is a bug in the compiler.
ObjectFile emitKernels(mlir::ModuleOp part, const llvm::StringSet<> &kernels, const CodeTarget &target,
                       llvm::StringRef instructionSet);
// Lowered kernels as optimized LLVM IR.
std::string printKernels(mlir::ModuleOp kernels, const CodeTarget &target);

} // namespace xfc
