// A folder that is written under a temporary name and renamed when it is complete.
#include "NewFolder.h"
#include "support/Error.h"
#include "support/Files.h"
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace fs = std::filesystem;

namespace xfc {

NewFolder::NewFolder(const std::string &name) : name(name) {
  std::error_code failure;
  if (fs::exists(name, failure) && !(fs::is_directory(name, failure) && fs::is_empty(name, failure)))
    throw Error(name + ": already exists and is not an empty folder; expected a new one, so that nothing is lost");
  fs::path path = fs::path(name).lexically_normal();
  path = path.has_filename() ? path : path.parent_path();
  if (path.has_parent_path())
    makeFolder(path.parent_path().string());
  partial = path.string() + ".partial-XXXXXX";
  if (!mkdtemp(partial.data()))
    throw Error(name + ": cannot create the folder: " + std::strerror(errno));
}

NewFolder::~NewFolder() {
  std::error_code failure;
  if (!partial.empty())
    fs::remove_all(partial, failure);
}

std::string NewFolder::file(const std::string &of) {
  named.push_back(of);
  return partial + "/" + of;
}

void NewFolder::commit() {
  std::error_code failure;
  fs::permissions(partial, fs::perms(0755), failure);
  fs::rename(partial, name, failure);
  if (failure)
    throw Error(name + ": cannot create the folder: " + failure.message());
  partial.clear();
}

} // namespace xfc
