#include "Memory.h"
#include <cstring>

namespace xfc::ptx {

Allocation &Memory::allocate(size_t bytes) {
  if (bytes > capacity - total)
    throw Error("out of device memory: " + std::to_string(bytes) + " bytes asked for, " +
                std::to_string(capacity - total) + " free");
  if (bytes >= (uint64_t(1) << AllocationShift) - FirstOffset)
    throw Error("an allocation of " + std::to_string(bytes) + " bytes is larger than 64 GiB");
  auto a = std::make_unique<Allocation>();
  a->address = GlobalWindow | uint64_t(allocations.size()) << AllocationShift | FirstOffset;
  a->bytes = bytes;
  a->live = true;
  a->data = std::make_unique_for_overwrite<uint8_t[]>(bytes);
  if (poison)
    memset(a->data.get(), 0xff, bytes);
  total += bytes;
  return *allocations.emplace_back(std::move(a));
}

void Memory::free(uint64_t address) {
  auto *a = const_cast<Allocation *>(at(address));
  if (!a || a->address != address || !a->live)
    throw Error("an address is freed that is not allocated");
  a->live = false;
  a->data.reset();
  total -= a->bytes;
}

Allocation *Memory::find(uint64_t address, size_t bytes, std::string *why) const {
  const Allocation *a = at(address);
  if (a && a->live && address - a->address <= a->bytes && bytes <= a->bytes - (address - a->address))
    return const_cast<Allocation *>(a);
  if (why) {
    if (!a) {
      *why = "no device memory is there";
    } else {
      auto offset = int64_t(address - a->address);
      *why = std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of an allocation of " +
             std::to_string(a->bytes) + " bytes" + (a->live ? "" : " that was freed");
    }
  }
  return nullptr;
}

uint8_t *Memory::bytes(uint64_t address, size_t count) const {
  std::string why;
  Allocation *a = find(address, count, &why);
  if (!a)
    throw Error("not device memory: " + why);
  return a->data.get() + (address - a->address);
}

} // namespace xfc::ptx
