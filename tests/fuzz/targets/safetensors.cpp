// Fuzzes files of weights and states: the length of the header, the header in JSON, then the tensors' bytes.
#include "engine/Safetensors.h"
#include "../JsonMutator.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    Metadata metadata;
    const TensorViews tensors = parseSafetensors(fuzz::textOf(data, size), "weights", &metadata);
    size_t bytes = 0;
    for (const TensorView &tensor : tensors) {
      fuzz::expect(tensor.bytes.data() >= reinterpret_cast<const char *>(data) &&
                       tensor.bytes.data() + tensor.bytes.size() <= reinterpret_cast<const char *>(data) + size,
                   "tensors lie within the file");
      bytes += tensor.bytes.size();
    }
    fuzz::expect(bytes <= size, "tensors do not overlap");
    notFinite(nullptr, tensors);
    verifyChecksums(nullptr, tensors, metadata, "weights");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  const std::string_view file = fuzz::textOf(data, size);
  uint64_t length = 0;
  if (size >= sizeof length)
    std::memcpy(&length, data, sizeof length);
  if (size < sizeof length || length > size - sizeof length || seed % 4 == 0)
    return LLVMFuzzerMutate(data, size, most);
  const std::string header = fuzz::JsonMutator(seed).change(file.substr(sizeof length, length), 4096);
  const uint64_t changed = header.size();
  return fuzz::replaced(data, size, most,
                        std::string(reinterpret_cast<const char *>(&changed), sizeof changed) + header +
                            std::string(file.substr(sizeof length + length)));
}
