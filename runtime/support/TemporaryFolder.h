// A temporary folder that is deleted with its contents.
#pragma once

#include "support/Unfinished.h"
#include <optional>
#include <string>

namespace xfc {

// The destructor, and a signal that ends the process, remove the folder with everything in it.
class TemporaryFolder {
public:
  // Creates xfc-PURPOSE-DIGITS in TMPDIR, or in /tmp. Throws Error if it cannot be created.
  explicit TemporaryFolder(const std::string &purpose);
  // Creates a folder whose path begins with this, and ends in random digits. Throws Error with the system's reason.
  static TemporaryFolder beginningWith(const std::string &beginning) { return {beginning, ""}; }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  ~TemporaryFolder();
  // The path of a file in it.
  std::string file(const std::string &name) const { return path + "/" + name; }
  std::string path;

private:
  TemporaryFolder(const std::string &beginning, const char *advice);
  std::optional<Unfinished> unfinished;
};

} // namespace xfc
