// Fuzzes CTranslate2's model.bin.
#include "../Fuzz.h"
#include "Foreign/Ctranslate2Model.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view contents = fuzz::textOf(data, size);
  fuzz::expectOnlyErrors([&] {
    const Ctranslate2Model model = Ctranslate2Model::parse(contents, "model.bin");
    for (const auto &[name, variable] : model.variables) {
      fuzz::expect(variable.bytes.empty() || (variable.bytes.data() >= contents.data() &&
                                              variable.bytes.data() + variable.bytes.size() <= contents.data() + size),
                   "variables lie within the file");
      uint64_t elements = 1;
      for (const int64_t extent : variable.shape) {
        fuzz::expect(extent >= 0, "extents are not negative");
        elements *= static_cast<uint64_t>(extent);
      }
      fuzz::expect(variable.bytes.size() % std::max<uint64_t>(elements, 1) == 0 &&
                       (elements == 0) == variable.bytes.empty(),
                   "variables have as many bytes as their shapes say");
    }
  });
  return 0;
}
