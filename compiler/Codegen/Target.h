// Describes a target as far as the passes before scheduling need to know it.
#pragma once

#include "Dialect/XFC.h"
#include <vector>

namespace xfc {

struct TargetTraits {
  std::vector<llvm::StringRef> withoutFusions; // fusions into ops for which it has no kernels or no faster ones
  int64_t normGradParts;                       // ranges of rows over which gradients of a norm's weights are summed
  std::vector<ComputeType> computeTypes;       // types that products can round their operands to
  int64_t attentionProducts = 0; // features that a head needs for attention's products to do it, too; 0: they do not
  llvm::StringRef refusedDtype = {}; // the --dtype that it does not support, if any
  llvm::StringRef refusal = {};      // the error message for it
};

} // namespace xfc
