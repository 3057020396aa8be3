// Says which code generator this is.
#pragma once

#include <string>

namespace xfc {

// Identifies everything that makes an object of a kernel's MLIR, besides the arguments of the functions in this folder:
// their source, as a sum that the build computes, and LLVM. Builds of the compiler that generate the same code agree.
std::string codeGeneratorVersion();

} // namespace xfc
