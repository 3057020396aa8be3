// Fuzzes the trailer of a packed executable: eight bytes with the file's size, then the end of the file.
#include "decode/Packed.h"
#include "../Fuzz.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t bytes;
  if (size < sizeof bytes)
    return 0;
  std::memcpy(&bytes, data, sizeof bytes);
  const std::string_view end = fuzz::textOf(data + sizeof bytes, size - sizeof bytes);
  if (bytes < end.size())
    bytes = end.size();
  fuzz::expectOnlyErrors([&] {
    const PackedParts parts = packedParts(end, bytes);
    uint64_t rest = bytes;
    for (uint64_t part : {parts.executable, parts.weights, parts.vocabulary, parts.targetVocabulary}) {
      fuzz::expect(part <= rest, "the parts lie in the file one after the other");
      rest -= part;
    }
  });
  return 0;
}
