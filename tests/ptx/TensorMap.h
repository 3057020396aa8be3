// The 128 bytes that describe a tensor to cp.async.bulk.tensor. On a GPU they are opaque; these are our own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace xfc::ptx {

struct alignas(64) TensorMap {
  uint32_t magic = 0x50414d54;
  uint8_t elementBytes = 0, rank = 0,
          swizzle = 0;  // swizzle: 0 none, else the bytes of a row of the pattern: 32, 64, 128
  bool fillNaN = false; // out of bounds: NaNs, else zeros
  uint64_t address = 0;
  uint64_t sizes[5] = {}, strides[4] = {}; // strides: bytes, of dimension 1 and up
  uint16_t box[5] = {};
};
static_assert(sizeof(TensorMap) == 128);

// As cuTensorMapEncodeTiled; dataType, interleave, swizzle and fill are its enumerators. What is wrong, or nothing.
std::optional<std::string> encodeTiled(TensorMap &map, int dataType, uint32_t rank, uint64_t address,
                                       const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                       const uint32_t *elementStrides, int interleave, int swizzle, int fill);

// Where the 16 bytes at a shared offset lie with a swizzle: rows of 128 bytes exchange their columns of 16.
inline uint32_t swizzled(uint32_t offset, int swizzle) {
  uint32_t mask = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
  return offset ^ (offset >> 7 & mask) << 4;
}

} // namespace xfc::ptx
