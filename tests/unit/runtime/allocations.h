// Counts what operator new gives out, in every thread.
#pragma once

#include <atomic>
#include <cstdint>

extern std::atomic<int64_t> allocations;
