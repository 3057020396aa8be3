// A temporary folder that is deleted with its contents.
#include "support/TemporaryFolder.h"
#include "support/FileWriter.h"
#include "support/Inputs.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>

namespace xfc {

static std::string temporary(const std::string &purpose) {
  const char *parent = std::getenv("TMPDIR");
  return std::string(parent && *parent ? parent : "/tmp") + "/xfc-" + purpose + "-";
}

TemporaryFolder::TemporaryFolder(const std::string &purpose)
    : TemporaryFolder(temporary(purpose), "; set TMPDIR to a folder that can be written to") {}

TemporaryFolder::TemporaryFolder(const std::string &beginning, const char *advice) {
  int made = 0;
  do {
    path = beginning + randomDigits();
    unfinished.emplace(path);
    made = ::mkdir(path.c_str(), 0700);
  } while (made != 0 && errno == EEXIST);
  if (made != 0)
    throw Error(path + ": cannot create the folder: " + std::strerror(errno) + advice);
  isUpdated(path); // a command may read here what it has written, and write it anew
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

} // namespace xfc
