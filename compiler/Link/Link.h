// Objects and the runtime into one executable, by lld.
#pragma once

#include <string>
#include <vector>

namespace xfc {

// Links object files' contents with the runtime that lies beside this compiler. The output appears whole or not
// at all. Throws Error naming what is missing: lld, the C library's start files, libstdc++, or the runtime.
void linkExecutable(const std::vector<std::vector<char>> &objects, const std::string &output);

} // namespace xfc
