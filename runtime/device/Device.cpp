// How a result is read.
#include "device/Device.h"

namespace xfc {

double View::at(int64_t i, int64_t j) const {
  const int64_t k = i * stride + j;
  switch (output->type) {
  case DType::F64:
    return static_cast<const double *>(data)[k];
  case DType::F32:
    return static_cast<const float *>(data)[k];
  case DType::I32:
    return static_cast<const int32_t *>(data)[k];
  }
  return 0;
}

} // namespace xfc
