// Counts the allocations by operator new in all threads.
#include "allocations.h"
#include <cstdlib>
#include <new>

std::atomic<int64_t> allocations = 0, allocatedBytes = 0;

void *operator new(std::size_t size) {
  ++allocations;
  allocatedBytes += static_cast<int64_t>(size);
  if (void *memory = std::malloc(size ? size : 1))
    return memory;
  throw std::bad_alloc();
}
// The standard library uses nothrow new for temporary buffers.
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
  ++allocations;
  allocatedBytes += static_cast<int64_t>(size);
  return std::malloc(size ? size : 1);
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
