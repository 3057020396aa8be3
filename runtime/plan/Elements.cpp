// Reads and writes numbers of any type in memory.
#include "plan/Elements.h"
#include <cmath>

namespace xfc {

double numberAt(DType type, const void *data, int64_t i) {
  switch (type) {
  case DType::F32:
    return static_cast<const float *>(data)[i];
  case DType::F64:
    return static_cast<const double *>(data)[i];
  case DType::I32:
    return static_cast<const int32_t *>(data)[i];
  case DType::BF16:
    return number::BF16::number(static_cast<const uint16_t *>(data)[i]);
  case DType::I8:
    return static_cast<const int8_t *>(data)[i];
  }
  return 0;
}

void storeNumber(double number, DType type, void *data, int64_t i) {
  switch (type) {
  case DType::F32:
    static_cast<float *>(data)[i] = static_cast<float>(number);
    break;
  case DType::F64:
    static_cast<double *>(data)[i] = number;
    break;
  case DType::I32:
    static_cast<int32_t *>(data)[i] = static_cast<int32_t>(number);
    break;
  case DType::BF16:
    static_cast<uint16_t *>(data)[i] = number::BF16::rounded(static_cast<float>(number));
    break;
  case DType::I8:
    static_cast<int8_t *>(data)[i] = static_cast<int8_t>(std::nearbyint(number));
    break;
  }
}

} // namespace xfc
