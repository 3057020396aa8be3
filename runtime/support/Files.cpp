// Reads whole files, and looks at what is in folders.
#include "support/Files.h"
#include "support/Descriptor.h"
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sys/stat.h>

namespace xfc {

std::string readFile(const std::string &file, size_t most) {
  struct stat info{};
  const Descriptor in(openWhole(file, info));
  return readAll(in.fd, info, file, most);
}

// Some file systems cannot sync a folder, and a folder that the process may search but not read cannot be opened: the
// files in it are complete either way.
bool syncFolder(const std::string &folder) {
  Descriptor opened(retried([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (opened.fd < 0)
    return errno == EACCES;
  return retried([&] { return ::fsync(opened.fd); }) == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP;
}

std::vector<std::string> namesIn(const std::string &folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry;
  do
    entry = std::filesystem::directory_iterator(folder, error);
  while (error == std::errc::interrupted);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw Error(folder + ": cannot list the folder: " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

void makeFolder(const std::string &folder) {
  for (size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    std::string part = folder.substr(0, slash);
    if (::mkdir(part.c_str(), 0777) == 0) {
      if (!syncFolder(folderOf(part)))
        failOn(part, "create the folder");
    } else {
      int reason = errno;
      struct stat info{};
      if (::stat(part.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
        errno = reason;
        failOn(part, "create the folder");
      }
    }
    if (slash == std::string::npos)
      return;
  }
}

bool exists(const std::string &file) {
  struct stat info{};
  return ::stat(file.c_str(), &info) == 0;
}

bool isFolder(const std::string &path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

} // namespace xfc
