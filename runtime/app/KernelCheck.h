// A GPU's kernels beside the CPU's, step by step: each gets what the CPU's earlier steps have left.
#pragma once

#include "engine/Engine.h"
#include <string>
#include <vector>

namespace xfc {

struct KernelDifference {
  std::string kernel, location; // of the GPU's step
  // The largest difference of any number that either wrote, over the largest of that operand, or a thousandth of the
  // largest of the step.
  double error = 0;
};

struct KernelComparison {
  std::vector<KernelDifference> steps;
  int64_t alone = 0; // steps of the GPU that the CPU's program has none like
};

// Of a program that both engines, of the same parameters, have run with the same batch. Results of that run are gone.
KernelComparison compareKernels(Engine &cpu, Engine &gpu, std::string_view program);

} // namespace xfc
