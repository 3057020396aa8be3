// Tells which features of the CPU this process may use.
#pragma once

#include <string>

namespace xfc {

// Returns the features of `needed` (/proc/cpuinfo's names, separated by commas) that are missing, separated by blanks.
// Requests permission for the tiles of AMX if they are needed: their instructions do not work without it.
std::string missingFeatures(const std::string &needed);

} // namespace xfc
