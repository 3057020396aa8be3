// Builds a function of a model, argument by argument and result by result.
#pragma once

#include "XFC.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace xfc {

// A function at the end of a module, whose ops are inserted at the end of its body by other builders. Its type and the
// attributes of its arguments and results are set by finish(), all at once: each of them is one list, which the context
// keeps until it ends, so that to change them one by one would take memory that grows with the square of their number.
class FunctionBuilder {
public:
  FunctionBuilder(mlir::ModuleOp module, llvm::StringRef name, mlir::Location loc);

  mlir::Block *body() { return block; }
  mlir::Value addArgument(llvm::StringRef name, llvm::StringRef role, mlir::Type type, mlir::Location loc);
  // Adds a result, which is written in the place of the argument `replaces` if there is one.
  void addResult(llvm::StringRef name, mlir::Value value, mlir::Value replaces = {});
  // Returns the results, and then drops those of the first `optional` arguments that nothing reads.
  void finish(unsigned optional = 0);

private:
  struct Result {
    mlir::StringAttr name;
    mlir::Value value, replaces;
  };

  mlir::func::FuncOp function;
  mlir::Block *block;
  llvm::SmallVector<mlir::DictionaryAttr> attributes; // of the arguments
  llvm::SmallVector<Result> results;
};

} // namespace xfc
