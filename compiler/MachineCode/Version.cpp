// Says which code generator this is.
#include "Version.h"
#include "llvm-c/Core.h"
#include "llvm/Config/llvm-config.h"

namespace xfc {

std::string codeGeneratorVersion() {
  // The headers say whether LLVM is a release, the library which one was loaded.
  unsigned numbers[3] = {};
  LLVMGetVersion(&numbers[0], &numbers[1], &numbers[2]);
  std::string version = XFC_MACHINE_CODE " " LLVM_VERSION_STRING;
  for (unsigned number : numbers)
    version += " " + std::to_string(number);
  return version;
}

} // namespace xfc
