// Counts what operator new gives out, in every thread: how often, and bytes.
#pragma once

#include <atomic>
#include <cstdint>

extern std::atomic<int64_t> allocations, allocatedBytes;
