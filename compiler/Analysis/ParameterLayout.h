// Where each parameter begins in the block of parameters. Blocks of gradients and of the optimizer's states have the
// same layout.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <string>
#include <vector>

namespace xfc {

// What a function says of an argument; empty for any other value, or where it says nothing.
struct NamedArgument {
  llvm::StringRef name, role;
};
NamedArgument argumentOf(mlir::Value value);

class ParameterLayout {
public:
  // Bytes that every group begins at a multiple of: a cache line.
  static constexpr int64_t alignment = 64;

  struct Parameter {
    std::string name;
    int64_t elements = 0;
    int64_t offset = 0; // elements
  };

  // Lays out `parameters` in their order, except that those which some op of the module concatenates (xfc.concat)
  // follow the first of them without gaps. Fails where there can be no such order, with a diagnostic at the
  // concatenation.
  static llvm::FailureOr<ParameterLayout> of(mlir::ModuleOp module, const std::vector<Parameter> &parameters,
                                             int64_t elementBytes);

  // In the order of the block.
  const std::vector<Parameter> &parameters() const { return placed; }
  // To the end of the last parameter, and of the block, which is a multiple of the alignment.
  int64_t used() const { return placed.empty() ? 0 : placed.back().offset + placed.back().elements; }
  int64_t elements() const { return blockElements; }

private:
  std::vector<Parameter> placed;
  int64_t blockElements = 0;
};

} // namespace xfc
