// A value in the reference interpreter.
#pragma once

#include <cstdint>
#include <vector>

namespace xfc {

// All data is f64, including ids and labels. Rows are [N, features...] (ids are [N]); pairs are [P * H] in the block
// layout of abi.h; tensors have their own shape.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> data;
  double *row(int64_t i) { return data.data() + i * features(); }
  const double *row(int64_t i) const { return data.data() + i * features(); }
  // Elements of one entry of the first dimension.
  int64_t features() const {
    int64_t n = 1;
    for (size_t d = 1; d < shape.size(); ++d)
      n *= shape[d];
    return n;
  }
};

} // namespace xfc
