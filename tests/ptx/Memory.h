// Device memory: allocations, each in an address range of its own.
#pragma once

#include "Interpreter.h"
#include <bit>

namespace xfc::ptx {

// A generic address names its space in its upper bits. These are not valid host addresses, so accessing one on the host
// faults. Device memory: bit 60, the allocation's number in bits 36 to 59, the offset below.
constexpr uint64_t GlobalWindow = uint64_t(1) << 60, SharedWindow = uint64_t(2) << 60, LocalWindow = uint64_t(3) << 60,
                   ParamWindow = uint64_t(4) << 60, WindowMask = uint64_t(7) << 60;
constexpr int AllocationShift = 36;
// Allocations have the alignment that the driver guarantees, and no more.
constexpr uint64_t FirstOffset = 256;

struct Allocation {
  uint64_t address = 0;
  size_t bytes = 0;
  bool live = false, constant = false;
  std::unique_ptr<uint8_t[]> data;
};

class Memory {
public:
  Memory(size_t capacity, bool poison) : capacity(capacity), poison(poison) {}
  Allocation &allocate(size_t bytes);
  void free(uint64_t address);
  // The allocation that holds these bytes, or null with the reason in `why`.
  Allocation *find(uint64_t address, size_t bytes, std::string *why) const;
  uint8_t *bytes(uint64_t address, size_t count) const; // throws Error
  size_t used() const { return total; }

  const Allocation *at(uint64_t address) const {
    uint64_t number = (address & ~WindowMask) >> AllocationShift;
    return (address & WindowMask) == GlobalWindow && number < allocations.size() ? allocations[number].get() : nullptr;
  }

private:
  size_t capacity, total = 0;
  bool poison; // new memory holds NaNs
  std::vector<std::unique_ptr<Allocation>>
      allocations; // numbers are never reused, so that stale addresses are detected
};

} // namespace xfc::ptx
