// Pages of the host: zeroed ones, or those of a mapped file.
#pragma once

#include "support/Files.h"
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
  // Zeroed pages, in huge ones where there are many and the system has them, but not for `sparse` memory, of which only
  // what is touched shall be taken. `what` is for the message of the Error where they are refused.
  void allocate(int64_t bytes, const char *what, bool sparse = false);
  // `bytes` from `begin` on of a mapped file, in place of pages of its own.
  void take(MappedFile &&file, const char *begin, int64_t bytes);
  // Gives the pages of such a file back, which are read again when they are touched: nothing was written to them.
  void releaseUnwritten() const;

private:
  void release();
  std::optional<MappedFile> file;
  void *mapping = nullptr, *memory = nullptr;
  int64_t used = 0;
  size_t mapped = 0;
};

} // namespace xfc
