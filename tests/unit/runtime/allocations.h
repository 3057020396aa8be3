// Counts the allocations by operator new in all threads, and their bytes.
#pragma once

#include <atomic>
#include <cstdint>

extern std::atomic<int64_t> allocations, allocatedBytes;
