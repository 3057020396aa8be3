// A folder that is written under a temporary name and renamed when it is complete.
#pragma once

#include "support/TemporaryFolder.h"
#include <string>
#include <vector>

namespace xfc {

class NewFolder {
public:
  // Throws Error if anything has this name but an empty folder that can be replaced: no link, and neither the current
  // folder nor one that is mounted.
  explicit NewFolder(const std::string &name);
  NewFolder(const NewFolder &) = delete;
  // The name that a file in the folder has until commit().
  std::string file(const std::string &of);
  const std::vector<std::string> &files() const { return named; } // those that file() was asked for
  // Syncs the folder, and its name, to disk. Throws Error with the system's reason.
  void commit();

private:
  std::string name;
  TemporaryFolder partial; // private; it holds the folder
  std::string folder;
  std::vector<std::string> named;
};

} // namespace xfc
