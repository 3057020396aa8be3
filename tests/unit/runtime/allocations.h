// Counts the allocations by operator new in all threads, and their bytes; and lets one of them fail.
#pragma once

#include <atomic>
#include <cstdint>

extern std::atomic<int64_t> allocations, allocatedBytes;
// The allocation that fails: by what `allocations` counts then; 0: none.
extern std::atomic<int64_t> failingAllocation;
