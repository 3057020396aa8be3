// Compares a GPU's kernels with the CPU's, step by step: each reads what the CPU's earlier steps have computed.
#pragma once

#include "engine/Engine.h"
#include <string>
#include <vector>

namespace xfc {

struct KernelDifference {
  std::string kernel, location; // of the GPU's step
  // The largest difference of an element that either side wrote, divided by the largest magnitude in its operand, or by
  // a thousandth of the largest in the step if that is more. It is that of the worst operand.
  double error = 0;
  double allowed = 0; // the largest error of a correct kernel
  // The first element of that operand that differs by more than is allowed: the index of the operand among the step's
  // buffers (results follow inputs), its location, and both values.
  size_t operand = 0;
  std::string place;
  int64_t element = -1; // -1: no element does
  float found = 0, expected = 0;
  // The difference as one line of text.
  std::string text() const;
};

struct KernelComparison {
  std::vector<KernelDifference> steps;
  int64_t alone = 0; // steps of the GPU without a counterpart in the CPU's program
};

// Compares every step of a program for a batch, on engines with the same parameters; if `kernel` is not empty, only the
// GPU's steps that run it. `rounds` says that operands are rounded to bf16. Throws Error naming the kernel if the GPU
// fails to run it. Overwrites the results of earlier runs.
KernelComparison compareKernels(Engine &cpu, Engine &gpu, std::string_view program, const xfc_shape &shape,
                                std::span<const Binding> bindings, bool rounds, std::string_view kernel = {});

} // namespace xfc
