// Fuzzes the flags of train in a JSON file, and how they are written back.
#include "app/Configuration.h"
#include "../JsonMutator.h"
#include "app/Commands.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    CommandLine app;
    addTrain(app);
    Command train = app.verb("train");
    applyConfiguration(train, std::string(fuzz::textOf(data, size)), "config.json");
    const std::string used = usedConfiguration(train);
    // A resumed run reads what it wrote.
    CommandLine again;
    addTrain(again);
    applyConfiguration(again.verb("train"), used, "config.json");
    fuzz::expect(usedConfiguration(again.verb("train")) == used, "a configuration survives a resume");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return fuzz::replaced(data, size, most, fuzz::JsonMutator(seed).change(fuzz::textOf(data, size), most));
}
