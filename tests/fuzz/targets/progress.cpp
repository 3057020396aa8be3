// Fuzzes the progress of a run as stored in its state.
#include "../JsonMutator.h"
#include "train/Checkpoint.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    const Progress progress = progressOf(std::string(fuzz::textOf(data, size)));
    fuzz::expect(progress.step >= 0 && progress.position.epoch >= 0 && progress.position.batch >= 0 &&
                     progress.facts.batchTokens > 0 && progress.facts.accumulate > 0 &&
                     progress.bestStep <= progress.step,
                 "what a run counts is not negative");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return fuzz::replaced(data, size, most, fuzz::JsonMutator(seed).change(fuzz::textOf(data, size), most));
}
