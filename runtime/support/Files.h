// Reading and writing files the safe way.
#pragma once

#include "support/Error.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// The whole file. Throws Error with the system's reason.
std::string readFile(const std::string &file);

// A file's bytes as memory: pages come from the system's cache when they are touched, and what is written to them stays
// in this process. 128 bytes behind the end can be read. The file may be replaced meanwhile as writeFile does it; one
// that is cut off where it lies ends the process with a message and status 1.
class MappedFile {
public:
  // Throws Error with the system's reason.
  explicit MappedFile(const std::string &file);
  MappedFile(const std::string &file, uint64_t offset, uint64_t size); // a part of it
  MappedFile(MappedFile &&other) noexcept;
  ~MappedFile();
  std::string_view contents() const { return {begin, size}; }

private:
  void reserve(uint64_t bytes);
  void map(int descriptor, const std::string &file, uint64_t offset, uint64_t bytes);
  void *pages = nullptr; // `mapped` bytes; the contents begin inside them
  size_t mapped = 0, size = 0;
  char *begin = nullptr;
};

// Temporary name beside it, fsync, rename, fsync of the folder. Throws Error; what was there stays, and so do its
// permissions and a link to it. A device or a pipe is written directly.
void writeFile(const std::string &file, std::string_view contents, bool executable = false);
// Throws what writeFile would throw at once: for a result that takes long to compute.
void checkWritable(const std::string &file);
// Lines without their ends (LF or CRLF). "-" is standard input. Throws Error: unreadable, or invalid UTF-8 (file:line).
std::vector<std::string> readLines(const std::string &file);
void makeFolder(const std::string &folder); // with its parents
bool exists(const std::string &file);

} // namespace xfc
