// Fuzzes lines of `translate --json-input`, and how a translation is added to them.
#include "../JsonMutator.h"
#include "app/JsonLines.h"
#include "support/Json.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text = fuzz::textOf(data, size), line = text.substr(0, text.find('\n'));
  fuzz::expectOnlyErrors([&] {
    const JsonLine read = readJsonLine(line, "lines:1");
    fuzz::expect(read.source.find('\n') == std::string::npos && read.prefix.find('\n') == std::string::npos,
                 "what is translated is one line");
    nlohmann::ordered_json before = parseOrderedJson(line, ""), result = {{"translation", "x"}};
    if (before.is_string())
      before = {{"source", before}};
    const std::string written = withFields(read, result);
    fuzz::expect(jsonIn(written).has_value(), "what is written is JSON");
    before.update(result);
    fuzz::expect(parseOrderedJson(written, "") == before,
                 "an object keeps its fields, in their order, and gets those of the translation");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return fuzz::replaced(data, size, most, fuzz::JsonMutator(seed).change(fuzz::textOf(data, size), most));
}
