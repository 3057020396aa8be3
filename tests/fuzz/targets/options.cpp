// Fuzzes the command lines of every verb of an executable.
#include "../CommandLines.h"
#include "app/Verbs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  xfc::fuzz::parseCommandLine("translator", xfc::verbs, xfc::fuzz::textOf(data, size));
  return 0;
}
