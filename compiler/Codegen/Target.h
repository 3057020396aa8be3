// What a target asks of the passes before scheduling.
#pragma once

#include "Dialect/XFC.h"
#include <vector>

namespace xfc {

struct TargetTraits {
  std::vector<llvm::StringRef> withoutFusions; // fusions into ops that it has no kernels for, or none that are faster
  int64_t normGradParts;                       // runs of rows over which the gradients of a norm's weights are summed
  std::vector<ComputeType> computeTypes;       // what its products can round their operands to
  bool attentionProducts = false;              // those of attention, too
  bool attentionBias = true;                   // whether it has a fused attention with a bias by distance
  llvm::StringRef refusedDtype = {};           // the --dtype it has no code for, and what a user is told then
  llvm::StringRef refusal = {};
};

} // namespace xfc
