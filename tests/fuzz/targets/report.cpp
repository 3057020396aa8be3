// Fuzzes the report page, and the choice of what it draws: the input has an array of records and the run's
// configuration.
#include "train/Report.h"
#include "../JsonMutator.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const nlohmann::json input = nlohmann::json::parse(fuzz::textOf(data, size), nullptr, false);
  if (!input.is_object() || !input.contains("records") || !input["records"].is_array())
    return 0;
  std::vector<nlohmann::json> records; // readLog() returns only objects
  for (const nlohmann::json &record : input["records"])
    if (record.is_object())
      records.push_back(record);
  const nlohmann::json configuration = input.value("configuration", nlohmann::json());
  fuzz::expectOnlyErrors([&] { formatOf(configuration); });
  fuzz::expectOnlyErrors([&] {
    fuzz::expect(sampleToDraw(records).size() <= 80, "what is drawn fits on the page");
    const std::string page = reportPage({{"run", records, configuration}}, {});
    fuzz::expect(page.find("<script") == page.npos, "nothing of a log becomes a script");
    fuzz::expect(page.size() < 100000 + 100 * size, "a page is not much larger than its log");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return fuzz::replaced(data, size, most, fuzz::JsonMutator(seed).change(fuzz::textOf(data, size), most));
}
