// A folder for files that nobody keeps.
#pragma once

#include "support/Error.h"
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace xfc {

// A new folder in TMPDIR, or in /tmp, which goes with all that is in it. Throws Error where none can be made.
class TemporaryFolder {
public:
  // `command` is a part of the folder's name: xfc-COMMAND-XXXXXX.
  explicit TemporaryFolder(const std::string &command) {
    const char *parent = std::getenv("TMPDIR");
    path = std::string(parent && *parent ? parent : "/tmp") + "/xfc-" + command + "-XXXXXX";
    if (!mkdtemp(path.data()))
      throw Error(path + ": no temporary folder can be made there; set TMPDIR to one that can be written");
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
