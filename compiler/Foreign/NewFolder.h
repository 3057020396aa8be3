// A folder that appears under its name when all of it is written.
#pragma once

#include <string>

namespace xfc {

class NewFolder {
public:
  // Throws Error where something else than an empty folder has the name.
  explicit NewFolder(const std::string &name);
  NewFolder(const NewFolder &) = delete;
  ~NewFolder();
  // The name that a file of it has until then.
  std::string file(const std::string &of) const { return partial + "/" + of; }
  void commit();

private:
  std::string name, partial;
};

} // namespace xfc
