// The steps from kernels to machine code that all targets share.
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

// Adds the passes that lower modules of kernels (functions in vector, scf, arith, math and nvvm, with LLVM pointers
// instead of memrefs) to the LLVM dialect, in place.
void addLoweringToLLVM(mlir::OpPassManager &manager);
// Throws Error if a pass fails, which is a bug in the compiler.
void runLowering(mlir::PassManager &manager, mlir::ModuleOp kernels);

// Must be called before translate(), which may then run on several threads.
void registerTranslations(mlir::MLIRContext &context);
// A lowered module as LLVM IR for the machine. Throws Error as above.
std::unique_ptr<llvm::Module> translate(mlir::ModuleOp lowered, llvm::LLVMContext &context,
                                        const llvm::TargetMachine &machine);
// Runs passes of LLVM, named as `opt -passes` takes them, without unrolling and vectorization: kernels are generated
// unrolled and vectorized.
void optimize(llvm::Module &module, llvm::TargetMachine &machine, llvm::StringRef passes);
// The module as an object file, or as assembly text.
llvm::SmallVector<char, 0> emit(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type);

} // namespace xfc
