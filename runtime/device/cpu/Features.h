// What this machine and its system let a process use.
#pragma once

#include <string>

namespace xfc {

// Those of `needed` (names of /proc/cpuinfo, separated by commas) that this process cannot use, separated by blanks.
// Asks the system for the tiles of AMX if they are needed: no instruction of theirs works before that.
std::string missingFeatures(const std::string &needed);

} // namespace xfc
