// The 128 bytes that describe a tensor to cp.async.bulk.tensor. On a GPU they are opaque; this is the interpreter's own
// format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace xfc::ptx {

struct alignas(64) TensorMap {
  uint32_t magic = 0x50414d54;
  uint8_t elementBytes = 0, rank = 0,
          swizzle = 0;  // swizzle: 0 none, else the bytes per row of the pattern: 32, 64, 128
  bool fillNaN = false; // fill for elements out of bounds: NaNs, else zeros
  uint64_t address = 0;
  uint64_t sizes[5] = {}, strides[4] = {}; // strides in bytes, from dimension 1 on
  uint16_t box[5] = {};
};
static_assert(sizeof(TensorMap) == 128);

// Like cuTensorMapEncodeTiled; dataType, interleave, swizzle and fill are its enumerators. Returns what is wrong, if
// anything.
std::optional<std::string> encodeTiled(TensorMap &map, int dataType, uint32_t rank, uint64_t address,
                                       const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                       const uint32_t *elementStrides, int interleave, int swizzle, int fill);

// The swizzled offset of the 16 bytes at a shared offset: 16-byte columns are permuted within rows of 128 bytes.
inline uint32_t swizzled(uint32_t offset, int swizzle) {
  uint32_t mask = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
  return offset ^ (offset >> 7 & mask) << 4;
}

} // namespace xfc::ptx
