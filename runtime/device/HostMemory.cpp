// Memory of the host: zeroed pages, or those of a mapped file.
#include "device/HostMemory.h"
#include <memory>
#include <sys/mman.h>
#include <utility>

namespace xfc {

// From 1 MB on, memory is taken in huge pages: they cause fewer TLB misses, and spread contiguous data evenly over the
// sets of a cache.
void HostMemory::allocate(int64_t bytes, const char *what, bool sparse) {
  constexpr size_t small = 4096, huge = 1 << 21;
  release();
  const size_t page = bytes >= 1 << 20 && !sparse ? huge : small;
  mapped = (bytes + 128 + page - 1) / page * page + (page - small);
  void *pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    mapped = 0;
    throw Error("out of memory: " + std::to_string(bytes) + " bytes of " + what +
                " cannot be allocated; use smaller batches (--batch-tokens)");
  }
  mapping = pages;
  void *start = pages;
  size_t room = mapped;
  memory = std::align(page, bytes, start, room); // always fits: pages are aligned to `small` already
  used = bytes;
  if (page == huge)
    madvise(pages, mapped, MADV_HUGEPAGE);
}

void HostMemory::take(MappedFile &&from, const char *begin, int64_t bytes) {
  release();
  file.emplace(std::move(from));
  memory = const_cast<char *>(begin); // a private mapping is writable
  used = bytes;
}

void HostMemory::releaseUnwritten() const {
  if (file)
    file->releaseUnwritten(file->contents());
}

void HostMemory::release() {
  file.reset();
  if (mapping)
    munmap(mapping, mapped);
  mapping = memory = nullptr;
  used = mapped = 0;
}

} // namespace xfc
