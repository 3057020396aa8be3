// Locks that processes hold by means of files.
#pragma once

#include "support/Error.h"
#include "support/Unfinished.h"
#include <optional>
#include <string>

namespace xfc {

// A lock that one process at a time holds until it ends or releases it. The lock file names the holder, and is removed
// on release.
class FileLock {
public:
  // Throws Error naming the process and the host that hold it; `what` begins the message.
  FileLock(const std::string &file, const std::string &what);
  FileLock(const FileLock &) = delete;
  ~FileLock();

private:
  std::string file;
  int descriptor = -1;
  std::optional<Unfinished> unfinished;
};

} // namespace xfc
