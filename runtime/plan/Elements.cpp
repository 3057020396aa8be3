// Reads and writes numbers of any type in memory.
#include "plan/Elements.h"
#include <bit>
#include <cmath>

namespace xfc {

// To nearest, ties to even.
static uint16_t toBF16(float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  if (std::isnan(number))
    return static_cast<uint16_t>(bits >> 16 | 0x40); // stays a NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double numberAt(DType type, const void *data, int64_t i) {
  switch (type) {
  case DType::F32:
    return static_cast<const float *>(data)[i];
  case DType::F64:
    return static_cast<const double *>(data)[i];
  case DType::I32:
    return static_cast<const int32_t *>(data)[i];
  case DType::BF16:
    return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t *>(data)[i]) << 16);
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
    static_cast<uint16_t *>(data)[i] = toBF16(static_cast<float>(number));
    break;
  case DType::I8:
    static_cast<int8_t *>(data)[i] = static_cast<int8_t>(std::nearbyint(number));
    break;
  }
}

} // namespace xfc
