#include "TensorMap.h"
#include <initializer_list>

namespace xfc::ptx {

std::optional<std::string> encodeTiled(TensorMap &map, int dataType, uint32_t rank, uint64_t address,
                                       const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                       const uint32_t *elementStrides, int interleave, int swizzle, int fill) {
  // UINT8 UINT16 UINT32 INT32 UINT64 INT64 FLOAT16 FLOAT32 FLOAT64 BFLOAT16 FLOAT32_FTZ TFLOAT32 TFLOAT32_FTZ
  constexpr uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  constexpr uint8_t swizzles[] = {0, 32, 64, 128};
  if (dataType < 0 || dataType > 12)
    return "unknown data type";
  if (rank < 1 || rank > 5)
    return "a rank that is not 1 to 5";
  if (interleave != 0)
    return "interleaved layouts are not supported";
  if (swizzle < 0 || swizzle > 3)
    return "unknown swizzle";
  if (fill < 0 || fill > 1 || (fill == 1 && dataType < 6))
    return "NaNs are for floating-point types";
  if (address % 16)
    return "an address that is no multiple of 16";
  map = {};
  map.elementBytes = bytes[dataType];
  map.rank = uint8_t(rank);
  map.swizzle = swizzles[swizzle];
  map.fillNaN = fill == 1;
  map.address = address;
  for (uint32_t k = 0; k < rank; ++k) {
    if (sizes[k] == 0 || sizes[k] > uint64_t(1) << 32)
      return "a size that is not 1 to 2^32";
    if (box[k] == 0 || box[k] > 256)
      return "a box that is not 1 to 256";
    if (elementStrides[k] != 1)
      return "element strides are not supported";
    map.sizes[k] = sizes[k];
    map.box[k] = uint16_t(box[k]);
    if (k + 1 < rank) {
      if (strides[k] % 16 || strides[k] >= uint64_t(1) << 40)
        return "a stride that is no multiple of 16 below 2^40";
      map.strides[k] = strides[k];
    }
  }
  uint32_t inner = box[0] * map.elementBytes;
  if (inner % 16)
    return "a box whose rows are no multiple of 16 bytes";
  if (map.swizzle && inner > map.swizzle)
    return "a box whose rows are longer than the swizzle's " + std::to_string(map.swizzle) + " bytes";
  return std::nullopt;
}

} // namespace xfc::ptx
