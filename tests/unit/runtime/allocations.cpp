// Counts the allocations by operator new in all threads, and lets one of them fail.
#include "allocations.h"
#include <cstdlib>
#include <new>

std::atomic<int64_t> allocations = 0, allocatedBytes = 0, failingAllocation = 0;

void *operator new(std::size_t size) {
  if (void *memory = operator new(size, std::nothrow))
    return memory;
  throw std::bad_alloc();
}
// The standard library uses nothrow new for temporary buffers.
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
  allocatedBytes += static_cast<int64_t>(size);
  return ++allocations == failingAllocation ? nullptr : std::malloc(size ? size : 1);
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
