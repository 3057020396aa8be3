// Computes where each parameter begins in the block of parameters. The blocks of gradients and of the optimizer's
// states have the same layout.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <string>
#include <vector>

namespace xfc {

// The name and role that a function declares for an argument; empty for any other value, or if none is declared.
struct NamedArgument {
  llvm::StringRef name, role;
};
NamedArgument argumentOf(mlir::Value value);

class ParameterLayout {
public:
  // The alignment of the start of every group, in bytes: a cache line.
  static constexpr int64_t alignment = 64;

  struct Parameter {
    std::string name;
    int64_t elements = 0;
    int64_t offset = 0; // elements
  };

  // Lays out `parameters` in their order, except that parameters that an op of the module concatenates (xfc.concat)
  // follow the first of them without gaps. Fails with a diagnostic if there is no such order.
  static llvm::FailureOr<ParameterLayout> of(mlir::ModuleOp module, const std::vector<Parameter> &parameters,
                                             int64_t elementBytes);

  // In the order of the block.
  const std::vector<Parameter> &parameters() const { return placed; }
  // The elements up to the end of the last parameter, and of the whole block, which is a multiple of the alignment.
  int64_t used() const { return placed.empty() ? 0 : placed.back().offset + placed.back().elements; }
  int64_t elements() const { return blockElements; }

private:
  std::vector<Parameter> placed;
  int64_t blockElements = 0;
};

} // namespace xfc
