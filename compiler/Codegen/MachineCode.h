// What every target's way from kernels to machine code shares.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include <memory>
#include <string>

namespace llvm {
class LLVMContext;
class Module;
class TargetMachine;
enum class CodeGenFileType;
} // namespace llvm
namespace mlir {
class OpPassManager;
class PassManager;
} // namespace mlir

namespace xfc {

// The passes that take modules of kernels (functions in vector, scf, arith, math, nvvm, memref-free LLVM pointers) down
// to the LLVM dialect, in place.
void addLoweringToLLVM(mlir::OpPassManager &manager);
// Throws Error when a pass fails: a defect of ours.
void runLowering(mlir::PassManager &manager, mlir::ModuleOp kernels);
// Both, for one module.
void lowerToLLVM(mlir::ModuleOp kernels);

// To be called before translate(), which may then run on several threads.
void registerTranslations(mlir::MLIRContext &context);
// A lowered module as LLVM IR for the machine. Throws Error as above.
std::unique_ptr<llvm::Module> translate(mlir::ModuleOp lowered, llvm::LLVMContext &context,
                                        const llvm::TargetMachine &machine);
// O3 for kernels, which are unrolled and vectorised by hand already.
void optimize(llvm::Module &module, llvm::TargetMachine &machine);
// An object, or assembly as text.
llvm::SmallVector<char, 0> emit(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type);

} // namespace xfc
