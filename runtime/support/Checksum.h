// A checksum of many bytes, as fast as memory gives them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// CRC-32C (Castagnoli; RFC 3720) of bytes, or of those that follow others whose sum is `before`.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

// For large data: the CRC-32C of each block of so many bytes, the last of which may be shorter, in order. Blocks can be
// summed on several threads.
constexpr size_t checksumBlock = 1 << 16;
void blockSums(std::string_view bytes, uint32_t *sums);
// What stands for all of it: the CRC-32C of the little-endian sums of the blocks, as eight hexadecimal digits.
std::string checksumOf(const std::vector<uint32_t> &sums);
std::string checksumOf(std::string_view bytes);

} // namespace xfc
