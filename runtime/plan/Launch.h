// Decides what a step launches for a batch: which of its kernels, and how many chunks.
#pragma once

#include "plan/Plan.h"

namespace xfc {

// The number of chunks of a step's kernel for a batch of these counts.
inline int64_t chunksOf(const Partition &partition, const Counts &counts, const Step &step) {
  int64_t count = 1;
  switch (partition.unit) {
  case Partition::Unit::One:
    break;
  case Partition::Unit::Rows:
    count = counts.rows[step.set];
    break;
  case Partition::Unit::KeyRows:
    count = counts.rows[step.keySet];
    break;
  case Partition::Unit::Sequences:
    count = counts.sequences[step.set];
    break;
  case Partition::Unit::Elements:
    count = step.elements;
    break;
  }
  return (count + partition.per - 1) / partition.per * partition.times;
}

// The kernel that a step runs for a batch of these counts.
inline int32_t kernelOf(const Module &module, const Counts &counts, const Step &step) {
  int32_t number = step.kernel;
  for (const Kernel *kernel = &module.kernels[number]; kernel->small >= 0 && counts.rows[step.set] <= kernel->smallRows;
       kernel = &module.kernels[number])
    number = kernel->small;
  return number;
}

// The kernel that runs after it to add up partial sums, or -1.
inline int32_t reductionOf(const Module &module, const Counts &counts, const Step &step) {
  return counts.rows[step.set] > chunkRows ? module.kernels[step.kernel].reduction : -1;
}

} // namespace xfc
