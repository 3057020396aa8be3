// Fuzzes the flags of train in a JSON file, and how they are written back.
#include "app/Configuration.h"
#include "../JsonMutator.h"
#include "app/Commands.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    CLI::App app;
    addTrain(app);
    CLI::App &train = *app.get_subcommand("train");
    applyConfiguration(train, std::string(fuzz::textOf(data, size)), "config.json");
    const std::string used = usedConfiguration(train);
    // A resumed run reads what it wrote.
    CLI::App again;
    addTrain(again);
    applyConfiguration(*again.get_subcommand("train"), used, "config.json");
    fuzz::expect(usedConfiguration(*again.get_subcommand("train")) == used, "a configuration survives a resume");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return fuzz::replaced(data, size, most, fuzz::JsonMutator(seed).change(fuzz::textOf(data, size), most));
}
