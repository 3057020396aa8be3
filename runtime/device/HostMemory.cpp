// Memory of the host: zeroed pages, or those of a mapped file.
#include "device/HostMemory.h"
#include "support/MappedFile.h"
#include <sys/mman.h>
#include <utility>

namespace xfc {

// From 1 MB on, memory is taken in huge pages: they cause fewer TLB misses, and spread contiguous data evenly over the
// sets of a cache. A last part of less than 1 MB is left to small pages, since a huge one would be committed as a
// whole.
void HostMemory::allocate(int64_t bytes, const char *what, bool sparse) {
  constexpr size_t small = 4096, huge = 1 << 21, enough = 1 << 20;
  release();
  const bool large = !sparse && bytes >= static_cast<int64_t>(enough);
  const size_t page = large ? huge : small, spare = page - small; // to begin at a multiple of `page`
  size_t size = (bytes + 128 + small - 1) / small * small;
  if (large && size % huge >= enough)
    size = (size + huge - 1) / huge * huge;
  void *pages = mmap(nullptr, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw Error("out of memory: " + std::to_string(bytes) + " bytes of " + what +
                " cannot be allocated; use smaller batches (--batch-tokens)");
  char *begin = static_cast<char *>(pages);
  const size_t before = (page - reinterpret_cast<uintptr_t>(begin) % page) % page;
  if (before > 0)
    munmap(begin, before);
  if (before < spare)
    munmap(begin + before + size, spare - before);
  mapping = memory = begin + before;
  mapped = size;
  used = bytes;
  if (large)
    madvise(memory, mapped, MADV_HUGEPAGE);
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

void HostMemory::releaseUnwritten(int64_t first, int64_t count) const {
  if (file)
    file->releaseUnwritten({static_cast<const char *>(memory) + first, static_cast<size_t>(count)});
}

void HostMemory::bringIn(int64_t first, int64_t count) const {
  if (file)
    file->bringIn({static_cast<const char *>(memory) + first, static_cast<size_t>(count)});
}

void HostMemory::release() {
  file.reset();
  if (mapping)
    munmap(mapping, mapped);
  mapping = memory = nullptr;
  used = mapped = 0;
}

} // namespace xfc
