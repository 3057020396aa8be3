// Fuzzes .npz files, as Marian and numpy write them: a zip archive of arrays. The checksums of stored members are
// usually repaired, so that the code behind them is reached.
#include "Foreign/Npz.h"
#include "../Fuzz.h"
#include "Foreign/Zip.h"
#include <zlib.h>

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view contents = fuzz::textOf(data, size);
  fuzz::expectOnlyErrors([&] {
    size_t stored = 0;
    const Zip zip(contents, "model.npz");
    for (const auto &[name, member] : zip.members()) {
      fuzz::expect(member.bytes.data() >= contents.data() &&
                       member.bytes.data() + member.bytes.size() <= contents.data() + size,
                   "members lie within the archive");
      stored += member.bytes.size();
    }
    fuzz::expect(stored <= size, "members do not overlap");
  });
  fuzz::expectOnlyErrors([&] {
    Npz arrays(contents, "model.npz");
    size_t bytes = 0;
    unsigned sum = 0;
    for (const auto &[name, header] : arrays.arrays()) {
      fuzz::expect(arrays.find(name) == &header && header.bytes.empty(), "a header is found by its array's name");
      const TensorView array = arrays.read(name);
      fuzz::expect(array.type == header.type && array.shape == header.shape, "an array is what its header says");
      bytes += array.bytes.size();
      for (const char byte : array.bytes)
        sum += static_cast<unsigned char>(byte); // every byte can be read
      arrays.release(name);
    }
    fuzz::expect(sum <= 255 * bytes && bytes <= 1100 * size, "an archive does not hold much more than its size");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  fuzz::Random random(seed);
  size = LLVMFuzzerMutate(data, size, most);
  if (random.oneIn(8))
    return size;
  const std::string_view file = fuzz::textOf(data, size);
  auto number = [&](size_t at, size_t bytes) {
    uint32_t value = 0;
    std::memcpy(&value, data + at, bytes);
    return size_t(value);
  };
  constexpr size_t memberSize = 30, entrySize = 46;
  for (size_t entry = file.find("PK\x01\x02"); entry < size && size - entry >= entrySize;
       entry = file.find("PK\x01\x02", entry + 1)) {
    const size_t packed = number(entry + 20, 4), place = number(entry + 42, 4);
    if (number(entry + 10, 2) != 0 || place > size || size - place < memberSize)
      continue;
    const size_t begin = place + memberSize + number(place + 26, 2) + number(place + 28, 2);
    if (begin > size || packed > size - begin)
      continue;
    const auto sum = static_cast<uint32_t>(crc32(crc32(0, nullptr, 0), data + begin, static_cast<uInt>(packed)));
    std::memcpy(data + entry + 16, &sum, sizeof sum);
  }
  return size;
}
