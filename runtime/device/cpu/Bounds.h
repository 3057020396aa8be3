// Decides which memory the call of a kernel may access, for executables built by `xfc compile --check-bounds`. Other
// executables only record what they run, which costs a few stores per chunk, and never check.
#pragma once

#include "device/Device.h"
#include <string>

namespace xfc {

// A kernel and the arguments of its launch.
struct CpuLaunch {
  const Module *module;
  const Kernel *kernel;
  const ProgramRun *run; // null, like `step`, if a weight is packed
  const Step *step;
  const PackRun *packing;
  xfc_call call;
  int64_t scratchBytes; // per thread
};

// Records that this thread now runs a chunk of a launch, which must stay alive until the next one is recorded.
void setRunning(const CpuLaunch &launch, int64_t chunk, const void *scratch);

// Says what is wrong with an access to `bytes` bytes at `at` by this thread's chunk, or returns "" if it is allowed. An
// operand extends from its first element to the end of the memory that scheduling gave it: a buffer in the arena, the
// rows of an argument, a packed weight or a table, or the whole block of parameters, gradients or states. A vector past
// the end may be read (device/Device.h).
std::string faultOf(const void *at, int64_t bytes, bool writes);

} // namespace xfc
