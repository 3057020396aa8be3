// A folder that is written under a temporary name and renamed when it is complete.
#include "NewFolder.h"
#include "support/Error.h"
#include "support/Files.h"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

namespace fs = std::filesystem;

namespace xfc {

// The path without a slash at its end.
static fs::path pathOf(const std::string &name) {
  const fs::path path = fs::path(name).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// Whether an empty folder can be replaced: not if it is a process's own, or one that is mounted.
static bool isReplaceable(const fs::path &path) {
  struct stat folder{}, parent{}, here{};
  const bool known =
      ::stat(path.c_str(), &folder) == 0 && ::stat((path / "..").c_str(), &parent) == 0 && ::stat(".", &here) == 0;
  return known && folder.st_dev == parent.st_dev && folder.st_ino != parent.st_ino &&
         !(folder.st_dev == here.st_dev && folder.st_ino == here.st_ino);
}

static TemporaryFolder madeFor(const std::string &name) {
  std::error_code failure;
  const fs::path path = pathOf(name);
  if (fs::is_symlink(path, failure))
    throw Error(name + ": is a link; expected the name of a new folder");
  if (fs::exists(path, failure)) {
    if (!(fs::is_directory(path, failure) && fs::is_empty(path, failure)))
      throw Error(name + ": already exists and is not an empty folder; expected a new one, so that nothing is lost");
    if (!isReplaceable(path))
      throw Error(name + ": is in use as a current or a mounted folder, which cannot be replaced; expected a new one");
  }
  if (path.has_parent_path())
    makeFolder(path.parent_path().string());
  return TemporaryFolder::beginningWith(path.string() + ".partial.");
}

NewFolder::NewFolder(const std::string &name) : name(name), partial(madeFor(name)), folder(partial.file("folder")) {
  if (::mkdir(folder.c_str(), 0777) != 0) // in the private one, with the permissions that the user gives to new folders
    throw Error(folder + ": cannot create the folder: " + std::strerror(errno));
}

std::string NewFolder::file(const std::string &of) {
  named.push_back(of);
  return folder + "/" + of;
}

void NewFolder::commit() {
  const fs::path path = pathOf(name), parent = path.parent_path();
  if (!syncFolder(folder) || ::rename(folder.c_str(), path.c_str()) != 0 ||
      !syncFolder(parent.empty() ? "." : parent.string()))
    throw Error(name + ": cannot create the folder: " + std::strerror(errno));
}

} // namespace xfc
