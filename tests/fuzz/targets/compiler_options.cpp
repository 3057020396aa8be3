// Fuzzes the command lines of every verb of xfc.
#include "../CommandLines.h"
#include "Tools/Verbs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  xfc::fuzz::parseCommandLine("xfc", xfc::compilerVerbs, xfc::fuzz::textOf(data, size));
  return 0;
}
