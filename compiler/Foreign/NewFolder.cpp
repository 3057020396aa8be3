// A folder that is written under a temporary name and renamed when it is complete.
#include "NewFolder.h"
#include "support/Error.h"
#include "support/Files.h"
#include <filesystem>

namespace fs = std::filesystem;

namespace xfc {

static TemporaryFolder madeFor(const std::string &name) {
  std::error_code failure;
  if (fs::exists(name, failure) && !(fs::is_directory(name, failure) && fs::is_empty(name, failure)))
    throw Error(name + ": already exists and is not an empty folder; expected a new one, so that nothing is lost");
  fs::path path = fs::path(name).lexically_normal();
  path = path.has_filename() ? path : path.parent_path();
  if (path.has_parent_path())
    makeFolder(path.parent_path().string());
  return TemporaryFolder::beginningWith(path.string() + ".partial.");
}

NewFolder::NewFolder(const std::string &name) : name(name), partial(madeFor(name)) {}

std::string NewFolder::file(const std::string &of) {
  named.push_back(of);
  return partial.file(of);
}

void NewFolder::commit() {
  std::error_code failure;
  fs::permissions(partial.path, fs::perms(0755), failure);
  fs::rename(partial.path, name, failure);
  if (failure)
    throw Error(name + ": cannot create the folder: " + failure.message());
}

} // namespace xfc
