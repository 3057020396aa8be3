// Files as memory.
#pragma once

#include "support/Error.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace xfc {

// A memory-mapped file: pages come from the page cache when they are first accessed, and writes to them stay private to
// this process. 128 bytes past the end can be read. The file may be replaced meanwhile the way writeFile does it; a
// file that is truncated in place raises SIGBUS when it is read.
class MappedFile {
public:
  // The same kinds of files as for readFile, of any size. Throws Error with the system's reason.
  explicit MappedFile(const std::string &file);
  MappedFile(const std::string &file, uint64_t offset, uint64_t size); // maps a part of it
  // For a file that may be larger than memory: no memory is committed for it, and its pages cannot be written to.
  static MappedFile readOnly(const std::string &file);
  MappedFile(MappedFile &&other) noexcept;
  ~MappedFile();
  std::string_view contents() const { return {begin, size}; }
  // Drops the pages of a read-only file from memory; they are read again at the next access.
  void release() const;
  // Throws Error if the file was written to since it was mapped. One that replaced it under its name does not matter,
  // unless it must also be the file of that name.
  void requireUnchanged(bool byName = false) const;
  // Releases the pages that lie entirely within this part of the contents, none of which was ever written to.
  void releaseUnwritten(std::string_view part) const;
  // For a file that is read part by part, roughly in order: releases the whole megabytes that end in this part. Each
  // release interrupts all threads of the process, so that parts of a few kilobytes are not worth one.
  void releaseBehind(std::string_view part) const;
  // Brings in the pages of a part of a writable file. Where a page is first read, the system maps those around it too,
  // 100 KB or so; here it copies each page alone, as if it were written to. Systems that cannot do so do nothing.
  void bringIn(std::string_view part) const;

private:
  MappedFile(const std::string &file, bool writable);
  void reserve(uint64_t bytes);
  void map(int descriptor, const std::string &file, uint64_t offset, uint64_t bytes);
  void *pages = nullptr; // `mapped` bytes; the contents begin inside them
  size_t mapped = 0, size = 0;
  char *begin = nullptr;
  bool writable = true, fromFile = false;
  struct Origin; // what is known of the file; null if it was not mapped
  std::unique_ptr<Origin> origin;
};

// From now on, reading a mapped file that was truncated ends the process with a message that names it, and status 1.
void endWhereFilesAreCutOff(); // by SIGBUS (Signals.h)

} // namespace xfc
