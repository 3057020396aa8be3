// Compiles the functions of a module of kernels one by one, as all targets do.
#pragma once

#include "ObjectCache.h"
#include "mlir/IR/BuiltinOps.h"
#include <vector>

namespace mlir {
class OpPassManager;
}

namespace xfc {

// Moves every function that has a body into a nested module of its own, which declares the functions that it calls and
// the variables that it uses. A kernel's code then depends on nothing but the kernel, and code for many kernels can be
// generated in parallel.
std::vector<mlir::ModuleOp> splitFunctions(mlir::ModuleOp kernels);

// How a function in a module of its own becomes an object.
struct FunctionCompiler {
  llvm::SmallVector<llvm::StringRef> machine; // what the object depends on, besides the function and its lowering
  llvm::function_ref<void(mlir::OpPassManager &)> addLowering; // adds the passes that lower it to the LLVM dialect
  llvm::function_ref<ObjectFile(mlir::ModuleOp)> emit;         // of a lowered one; several may run at the same time
};
// The objects of all functions, in their order: from the cache, or else made, in parallel if the context is
// multithreaded. Their bytes depend neither on the number of threads nor on the cache. Splits the module. Throws Error
// if a function cannot be compiled, which is a bug in the compiler, or as ObjectCache::keep() does.
std::vector<ObjectFile> compileFunctions(mlir::ModuleOp kernels, const ObjectCache &cache,
                                         const FunctionCompiler &compiler);

} // namespace xfc
