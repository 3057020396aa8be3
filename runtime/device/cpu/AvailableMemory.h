// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

// Bytes: the least of what the machine has free, what the limits of its control groups (a container's, a job's) leave,
// and what the process's own limit of address space leaves. 0 where nobody knows. `root` stands for / in tests.
int64_t availableMemory(const std::string &root = "");

} // namespace xfc
