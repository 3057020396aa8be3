// Open files of the system, for what reads and writes them.
#include "support/Descriptor.h"
#include <cerrno>
#include <cstring>

namespace xfc {

void failOn(const std::string &file, const char *doing) {
  throw Error(file + ": cannot " + doing + ": " + std::strerror(errno));
}

int openWhole(const std::string &file, struct stat &info) {
  const int fd = retried([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0)
    failOn(file, "open");
  Descriptor opened(fd);
  if (::fstat(fd, &info) != 0)
    failOn(file, "read");
  if (S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    failOn(file, "read");
  }
  const bool passed = S_ISFIFO(info.st_mode) && file.starts_with("/dev/");
  if (!S_ISREG(info.st_mode) && !passed)
    throw Error(file + ": is a device, a pipe or a socket; expected a file");
  if (::fcntl(fd, F_SETFL, 0) != 0) // reading waits
    failOn(file, "read");
  announceInput(file);
  opened.fd = -1;
  return fd;
}

std::string readAll(int fd, const struct stat &info, const std::string &file, size_t most) {
  const auto refuse = [&] {
    throw Error(file + ": larger than " + std::to_string(most >> 20) + " MB; no file of this use is that large");
  };
  if (info.st_size > 0 && static_cast<size_t>(info.st_size) > most)
    refuse();
  // If the size is known, one extra byte of room lets the next read detect the end; a pipe reports no size.
  std::string contents(info.st_size > 0 ? info.st_size + 1 : 1 << 16, '\0');
  for (size_t size = 0;;) {
    if (size > most)
      refuse();
    const ssize_t got = retried([&] { return ::read(fd, contents.data() + size, contents.size() - size); });
    if (got < 0)
      failOn(file, "read");
    size += got;
    if (got == 0) {
      contents.resize(size);
      return contents;
    }
    if (size == contents.size())
      contents.resize(2 * size);
  }
}

std::string folderOf(const std::string &file) {
  size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

} // namespace xfc
