// The measured peak rates of the machine: fused multiply-adds and memory traffic.
#pragma once

#include "device/ThreadPool.h"

namespace xfc {

struct Peak {
  double gflops = 0;        // f32; a multiply-add counts as two operations
  double readBandwidth = 0; // GB/s out of main memory
  double copyBandwidth = 0; // a copied byte counts twice: read and written
};

// Uses all threads of the pool; takes a quarter of a second and 256 MB.
Peak measurePeak(ThreadPool &pool);

} // namespace xfc
