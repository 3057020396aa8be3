// Which memory a kernel's call may touch, for executables that `xfc compile --check-bounds` made. Others set what they
// run, which costs them three stores for each chunk, and never ask.
#pragma once

#include "device/Device.h"
#include <string>

namespace xfc {

// A kernel and what it is called with.
struct CpuLaunch {
  const Module *module;
  const Kernel *kernel;
  const ProgramRun *run; // null where a weight is packed, as is the step
  const Step *step;
  const PackRun *packing;
  xfc_call call;
  int64_t scratchBytes; // per thread
};

// From here on, this thread runs a chunk of a launch, which stays where it is until the next is set.
void setRunning(const CpuLaunch &launch, int64_t chunk, const void *scratch);

// What is wrong with an access to `bytes` bytes from `at` on by the chunk that this thread runs; empty if nothing is.
// Operands reach from their first element to the end of the memory that scheduling gave them: of their buffer in the
// arena, of an argument's rows, of a packed weight or table; of the block, for parameters, gradients and states. A
// vector past the end may be read (device/Device.h).
std::string faultOf(const void *at, int64_t bytes, bool writes);

} // namespace xfc
