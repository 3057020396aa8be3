// Keeps what a command reads from being replaced by what it writes.
#include "support/Inputs.h"
#include "support/Error.h"
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sys/stat.h>

namespace xfc {
namespace {

// Names, not inodes: the inode of a file that has been removed may become that of another file.
struct Names {
  std::set<std::string> inputs, outputs, updated;
  std::map<std::string, std::string> opened, written; // canonical path -> name, of outputs that are open, or complete
};
constexpr const char *runningProgram = "/proc/self/exe";
std::optional<Names> names; // of the command that is run
std::mutex accessing;

std::optional<struct stat> regular(const std::string &file) {
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return std::nullopt;
  return info;
}

bool isUpdatedHere(const std::string &file) {
  const std::string path = canonicalPath(file);
  for (const std::string &updated : names->updated) {
    const std::string whole = canonicalPath(updated);
    if (path == whole || path.starts_with(whole + "/"))
      return true;
  }
  return false;
}

// The name among these of the file that is called `file`, too; null if there is none.
const std::string *sameAs(const std::string &file, const std::set<std::string> &others) {
  if (const std::optional<struct stat> info = regular(file))
    for (const std::string &other : others)
      if (const auto theirs = regular(other);
          theirs && theirs->st_dev == info->st_dev && theirs->st_ino == info->st_ino)
        return &other;
  return nullptr;
}

[[noreturn]] void refuse(const std::string &output, const std::string &input) {
  if (input == runningProgram)
    throw Error(output + ": is the program that is running, which writing the output would replace; name another file "
                         "for the output");
  throw Error(output + ": is " + (input == output ? "" : "the same file as " + input + ", ") +
              "an input of this command, which writing the output would replace; name another file for the output");
}

} // namespace

std::string canonicalPath(const std::string &file) {
  std::error_code none;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(file, none), none);
}

InputsAreKept::InputsAreKept() {
  const std::lock_guard guard(accessing);
  names.emplace();
  names->inputs.insert(runningProgram);
}

InputsAreKept::~InputsAreKept() {
  const std::lock_guard guard(accessing);
  names.reset();
}

void announceInput(const std::string &file) {
  const std::lock_guard guard(accessing);
  if (!names)
    return;
  const std::string name = file == "-" ? "/dev/stdin" : file;
  if (const std::string *output = sameAs(name, names->outputs); output && !isUpdatedHere(*output))
    refuse(*output, name);
  names->inputs.insert(name);
}

static void insertOutput(const std::string &file) {
  if (const std::string *input = sameAs(file, names->inputs); input && !isUpdatedHere(file))
    refuse(file, *input);
  names->outputs.insert(file);
}

void announceOutput(const std::string &file) {
  const std::lock_guard guard(accessing);
  if (names && file != "-")
    insertOutput(file);
}

void outputIsComplete(const std::string &file) {
  const std::lock_guard guard(accessing);
  if (!names)
    return;
  names->outputs.erase(file);
  names->written.emplace(canonicalPath(file), file);
}

void isUpdated(const std::string &path) {
  const std::lock_guard guard(accessing);
  if (names)
    names->updated.insert(path);
}

OpenedOutput::OpenedOutput(const std::string &file) {
  const std::lock_guard guard(accessing);
  if (!names)
    return;
  insertOutput(file);
  struct stat info{};
  if ((::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) || isUpdatedHere(file))
    return;
  const std::string place = canonicalPath(file);
  for (const std::map<std::string, std::string> *others : {&names->opened, &names->written})
    if (const auto other = others->find(place); other != others->end())
      throw Error(file + ": is " + (other->second == file ? "" : "the same file as " + other->second + ", ") +
                  "another output of this command; give each output a name of its own");
  names->opened.emplace(place, file);
  path = place;
}

OpenedOutput::~OpenedOutput() {
  const std::lock_guard guard(accessing);
  if (names && !path.empty())
    names->opened.erase(path);
}

} // namespace xfc
