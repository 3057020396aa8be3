// A temporary folder that is deleted with its contents.
#pragma once

#include "support/Error.h"
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace xfc {

// Creates a folder in TMPDIR, or in /tmp; the destructor removes it with everything in it. Throws Error if none can be
// created.
class TemporaryFolder {
public:
  // `command` is a part of the folder's name: xfc-COMMAND-XXXXXX.
  explicit TemporaryFolder(const std::string &command) {
    const char *parent = std::getenv("TMPDIR");
    path = std::string(parent && *parent ? parent : "/tmp") + "/xfc-" + command + "-XXXXXX";
    if (!mkdtemp(path.data()))
      throw Error(path + ": cannot create a temporary folder there; set TMPDIR to a writable folder");
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

} // namespace xfc
