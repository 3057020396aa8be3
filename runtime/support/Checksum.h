// Checksums of large data, computed at memory bandwidth.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// CRC-32C (Castagnoli; RFC 3720) of `bytes`, continuing from `before`, the sum of the bytes that precede them.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

// For large data: the CRC-32C of each block of this many bytes, in order; the last block may be shorter. Several
// threads can sum different blocks. `use`, if given, is called with each part of a few kilobytes once it is summed,
// while it is in the cache; the parts come in any order, and each begins at a multiple of 1 KB.
constexpr size_t checksumBlock = 1 << 16;
void blockSums(std::string_view bytes, uint32_t *sums, const std::function<void(std::string_view part)> &use = {});
// The checksum of all the data: the CRC-32C of the little-endian sums of its blocks, as eight hexadecimal digits.
std::string checksumOf(const std::vector<uint32_t> &sums);
std::string checksumOf(std::string_view bytes);

} // namespace xfc
