// Locks that processes hold by means of files.
#include "support/FileLock.h"
#include "support/Descriptor.h"
#include "support/Files.h"
#include <cerrno>
#include <cstring>
#include <sys/file.h>
#include <utility>

namespace xfc {

FileLock::FileLock(const std::string &file, const std::string &what) : file(file) {
  for (;;) {
    descriptor = retried([&] { return ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666); });
    if (descriptor < 0)
      failOn(file, "write");
    if (retried([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK) {
      char text[400];
      const ssize_t got = retried([&] { return ::read(descriptor, text, sizeof text); });
      std::string holder(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
      std::erase_if(holder, [](unsigned char byte) { return byte < 0x20 || byte > 0x7E; });
      ::close(std::exchange(descriptor, -1));
      throw Error(what + (holder.empty() ? "another process" : holder));
    }
    // The previous holder may have removed the file meanwhile; only a lock on the file that is now at this path counts.
    struct stat ours{}, there{};
    if (::fstat(descriptor, &ours) == 0 && ::stat(file.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
        ours.st_dev == there.st_dev)
      break;
    ::close(descriptor);
  }
  unfinished.emplace(file);
  char host[256] = "an unknown host";
  ::gethostname(host, sizeof host - 1);
  const std::string holder = "process " + std::to_string(::getpid()) + " on " + host + "\n";
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, holder.data(), holder.size(), 0) < 0) {
    // A full disk: the lock holds, but does not name its holder.
  }
}

FileLock::~FileLock() {
  if (descriptor < 0)
    return;
  ::unlink(file.c_str());
  unfinished.reset(); // before the lock: from then on, a file of that name is another process's
  ::close(descriptor);
}

} // namespace xfc
