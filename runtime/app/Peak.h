// What the machine can do at most, measured: fused multiply-adds and memory traffic.
#pragma once

#include "device/ThreadPool.h"

namespace xfc {

struct Peak {
  double gflops = 0;        // f32, a multiply-add counted as two
  double readBandwidth = 0; // GB/s out of main memory
  double copyBandwidth = 0; // a copied byte counts twice: read and written
};

// With all threads of the pool; takes a quarter of a second and 256 MB.
Peak measurePeak(ThreadPool &pool);

} // namespace xfc
