// Checksums of large data, computed at memory bandwidth.
#include "support/Checksum.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nmmintrin.h>

namespace xfc {
namespace {

uint64_t wordAt(const char *bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// Parts of this size of four blocks fit the first cache together.
constexpr size_t partBytes = 1 << 10;

// The instruction has a latency of three cycles: four independent blocks keep it busy.
[[gnu::target("sse4.2")]] void fourBlocks(const char *bytes, uint32_t *sums,
                                          const std::function<void(std::string_view)> &use) {
  uint64_t sum[4] = {~0u, ~0u, ~0u, ~0u};
  for (size_t part = 0; part < checksumBlock; part += partBytes) {
    for (size_t i = part; i < part + partBytes; i += sizeof(uint64_t))
      for (size_t block = 0; block < 4; ++block)
        sum[block] = _mm_crc32_u64(sum[block], wordAt(bytes + block * checksumBlock + i));
    for (size_t block = 0; use && block < 4; ++block)
      use({bytes + block * checksumBlock + part, partBytes});
  }
  for (size_t block = 0; block < 4; ++block)
    sums[block] = ~static_cast<uint32_t>(sum[block]);
}

} // namespace

[[gnu::target("sse4.2")]] uint32_t crc32c(std::string_view bytes, uint32_t before) {
  uint64_t sum = ~before;
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t))
    sum = _mm_crc32_u64(sum, wordAt(bytes.data() + i));
  for (; i < bytes.size(); ++i)
    sum = _mm_crc32_u8(static_cast<uint32_t>(sum), static_cast<unsigned char>(bytes[i]));
  return ~static_cast<uint32_t>(sum);
}

void blockSums(std::string_view bytes, uint32_t *sums, const std::function<void(std::string_view)> &use) {
  for (; bytes.size() >= 4 * checksumBlock; bytes.remove_prefix(4 * checksumBlock), sums += 4)
    fourBlocks(bytes.data(), sums, use);
  while (!bytes.empty()) {
    const std::string_view block = bytes.substr(0, checksumBlock);
    uint32_t sum = 0;
    for (size_t part = 0; part < block.size(); part += 4 * partBytes) {
      const std::string_view next = block.substr(part, 4 * partBytes);
      sum = crc32c(next, sum);
      if (use)
        use(next);
    }
    *sums++ = sum;
    bytes.remove_prefix(block.size());
  }
}

std::string checksumOf(const std::vector<uint32_t> &sums) {
  char text[9];
  const auto *bytes = reinterpret_cast<const char *>(sums.data());
  std::snprintf(text, sizeof text, "%08x", crc32c({bytes, sums.size() * sizeof(uint32_t)}));
  return text;
}

std::string checksumOf(std::string_view bytes) {
  std::vector<uint32_t> sums((bytes.size() + checksumBlock - 1) / checksumBlock);
  blockSums(bytes, sums.data());
  return checksumOf(sums);
}

} // namespace xfc
