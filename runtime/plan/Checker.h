// Checks what was read of a plan: a damaged one must not make the runtime read or write where it may not.
#pragma once

#include "plan/Plan.h"
#include <cstddef>
#include <cstdint>
#include <vector>

namespace xfc {

// Throws the Error for a plan that no compiler has written.
[[noreturn]] void damagedPlan();

// Limits for the indices and offsets in a program: how many kernels, packed weights and tables its module has, and how
// many bytes the packed weights and the blocks of parameters and states hold.
struct IndexLimits {
  size_t tables;
  int64_t parameterBytes;
  std::vector<int64_t> packedBytes; // of each packed weight
  std::vector<int64_t> stateBytes;  // of each state's block
  std::vector<bool> persistent;     // whether each kernel runs others
};

// These check that every index refers to something, and that every size and offset is within bounds; they throw as
// damagedPlan() does. First the limits for the programs of a module, then all of the module but its programs, its
// settings included, then each program.
IndexLimits limitsOf(const Module &module);
void checkSettings(const ModelSettings &settings);
void checkModule(const Module &module, const IndexLimits &limits);
void checkProgram(const Program &program, const IndexLimits &limits);

} // namespace xfc
