// A folder that is written under a temporary name and renamed when it is complete.
#pragma once

#include "support/TemporaryFolder.h"
#include <string>
#include <vector>

namespace xfc {

class NewFolder {
public:
  // Throws Error if anything but an empty folder has this name.
  explicit NewFolder(const std::string &name);
  NewFolder(const NewFolder &) = delete;
  // The name that a file in the folder has until commit().
  std::string file(const std::string &of);
  const std::vector<std::string> &files() const { return named; } // those that file() was asked for
  void commit();

private:
  std::string name;
  TemporaryFolder partial;
  std::vector<std::string> named;
};

} // namespace xfc
