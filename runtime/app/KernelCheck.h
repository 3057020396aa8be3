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
  // The first element of that operand that differs by more than is allowed: which of the step's
  // operands (results come after what it reads), where it lies, and both numbers.
  size_t operand = 0;
  std::string place;
  int64_t element = -1; // -1: none differs by more
  float found = 0, expected = 0;
  // All of this in words.
  std::string text() const;
};

struct KernelComparison {
  std::vector<KernelDifference> steps;
  int64_t alone = 0; // steps of the GPU that the CPU's program has none like
};

// Every step of a program for a batch, on engines with the same parameters; on the GPU only those that run `kernel`,
// unless it is empty. Throws Error naming the kernel where the GPU does not run it. Results of earlier runs are gone.
KernelComparison compareKernels(Engine &cpu, Engine &gpu, std::string_view program, const xfc_shape &shape,
                                std::span<const Binding> bindings, double allowed, std::string_view kernel = {});

} // namespace xfc
