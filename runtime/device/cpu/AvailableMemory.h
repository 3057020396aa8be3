// How much memory this process can still take.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

// In bytes, the least of: what the machine has available, what the limits of its control groups (a container's, a
// job's) leave, and what the limit of its address space leaves. 0 if unknown. `root` replaces / in tests.
int64_t availableMemory(const std::string &root = "");

} // namespace xfc
