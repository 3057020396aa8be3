// Open files of the system, for what reads and writes them.
#pragma once

#include "support/Error.h"
#include "support/Inputs.h"
#include "support/Retried.h"
#include <cstddef>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace xfc {

// Throws an Error that names the file, what could not be done, and the system's reason.
[[noreturn]] void failOn(const std::string &file, const char *doing);

// Closes the file at the end of its life.
struct Descriptor {
  int fd;
  explicit Descriptor(int fd) : fd(fd) {}
  // Opens the file for reading.
  explicit Descriptor(const std::string &file)
      : fd((announceInput(file), retried([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC); }))) {
    if (fd < 0)
      failOn(file, "open");
  }
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
};

// Opens a file that is to be read as a whole, if it is of a kind that readFile reads. Opening does not wait, as it
// would for the writer of a named pipe.
int openWhole(const std::string &file, struct stat &info);
// Reads `fd` to its end, or throws Error if there are more than `most` bytes; `file` is for messages.
std::string readAll(int fd, const struct stat &info, const std::string &file, size_t most);

// The folder of a file; "." for a name alone.
std::string folderOf(const std::string &file);

} // namespace xfc
