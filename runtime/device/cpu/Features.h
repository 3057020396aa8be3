// Which features of the CPU this process may use.
#pragma once

#include <string>

namespace xfc {

// Those of `needed` (names of /proc/cpuinfo, separated by commas) that this process cannot use, separated by blanks.
// Requests permission for the tiles of AMX if they are needed: their instructions do not work without it.
std::string missingFeatures(const std::string &needed);

} // namespace xfc
