// Fuzzes the YAML of Marian: the options of its models and decoders, and its vocabularies.
#include "Foreign/Yaml.h"
#include "../Fuzz.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    const Yaml yaml(fuzz::textOf(data, size), "model.yml");
    for (const Yaml::Entry &entry : yaml.entries()) {
      fuzz::expect(yaml.has(entry.key), "an entry is found by its key");
      fuzz::expect(entry.line > 0, "an entry has a line");
      fuzz::expect(yaml.strings(entry.key) == entry.items, "a list is read as it is");
      fuzz::expect(entry.list || entry.items.size() <= 1, "a value without a list is a scalar");
      fuzz::expectOnlyErrors([&] { yaml.string(entry.key, ""); });
      fuzz::expectOnlyErrors([&] { yaml.boolean(entry.key, false); });
      fuzz::expectOnlyErrors([&] {
        const int64_t value = yaml.integer(entry.key, -5, 1000, 0);
        fuzz::expect(value >= -5 && value <= 1000, "an integer is within its bounds");
      });
      fuzz::expectOnlyErrors([&] {
        const double value = yaml.number(entry.key, 0, 1, 0);
        fuzz::expect(value >= 0 && value <= 1, "a number is within its bounds");
      });
      fuzz::expectOnlyErrors([&] { yaml.integers(entry.key, 0, 1 << 20); });
    }
  });
  return 0;
}
