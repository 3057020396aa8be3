// The measured peak rates of the machine: products and memory traffic.
#pragma once

#include "device/ThreadPool.h"
#include <string>

namespace xfc {

// A multiplication and an addition count as two operations.
struct Peak {
  double gflops = 0;        // f32, by fused multiply-adds
  double bf16 = 0;          // products in bf16, by the best instructions of the instruction set
  double int8 = 0;          // the same in int8
  double readBandwidth = 0; // GB/s out of main memory
  double copyBandwidth = 0; // a copied byte counts twice: read and written

  // The rate of the instructions that a kernel with this name multiplies with.
  double rateOf(const std::string &kernel) const;
};

// `cpu` is the name of the instruction set that kernels were compiled for (Device::name). Uses all threads of the pool;
// takes half a second and 256 MB.
Peak measurePeak(ThreadPool &pool, const std::string &cpu);

} // namespace xfc
