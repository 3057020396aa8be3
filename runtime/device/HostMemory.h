// Memory of the host: zeroed pages, or those of a mapped file.
#pragma once

#include "support/MappedFile.h"
#include <optional>

namespace xfc {

// Aligned to 64 bytes or more, with room to read a vector past the end.
class HostMemory {
public:
  HostMemory() = default;
  HostMemory(const HostMemory &) = delete;
  ~HostMemory() { release(); }
  void *data() const { return memory; }
  int64_t bytes() const { return used; }
  // Takes zeroed pages: huge ones for large memory if the system has them. Of `sparse` memory, which never has huge
  // pages, only what is touched is committed. The Error for refused memory names `what`.
  void allocate(int64_t bytes, const char *what, bool sparse = false);
  // Takes `bytes` bytes of a mapped file from `begin` on, in place of zeroed pages.
  void take(MappedFile &&file, const char *begin, int64_t bytes);
  // Releases the pages of such a file, or of `count` bytes from `first` on, to which nothing may have been written;
  // they are read again when touched.
  void releaseUnwritten() const;
  void releaseUnwritten(int64_t first, int64_t count) const;
  // Brings in the pages of these bytes of such a file, without those around them.
  void bringIn(int64_t first, int64_t count) const;

private:
  void release();
  std::optional<MappedFile> file;
  void *mapping = nullptr, *memory = nullptr;
  int64_t used = 0;
  size_t mapped = 0;
};

} // namespace xfc
