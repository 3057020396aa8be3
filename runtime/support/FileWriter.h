// Writes files atomically.
#pragma once

#include "support/Error.h"
#include "support/Inputs.h"
#include "support/Unfinished.h"
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace xfc {

// Writes a file in pieces, under a temporary name next to it that is atomically renamed at commit(). Until then the old
// file stays; its permissions, and a link to it, are preserved. A device or a pipe receives the bytes directly. All
// members throw Error with the system's reason. A file that the command reads is refused (support/Inputs.h).
class FileWriter {
public:
  explicit FileWriter(const std::string &file, bool executable = false);
  FileWriter(const FileWriter &) = delete;
  ~FileWriter(); // removes what was not committed
  void write(std::string_view bytes);
  // Commits files that belong together. A process that is killed meanwhile leaves the old files, or some or none of the
  // old or of the new ones, but never old and new ones.
  static void commitTogether(std::span<FileWriter *const> writers);
  // Syncs the file to disk and renames it. The old file is kept under the name `previous`, in the same folder, unless
  // that is empty.
  void commit(const std::string &previous = "");

private:
  [[noreturn]] void fail() const;
  void sync() const;
  OpenedOutput opened;
  std::string name, file, partial; // the name as given; the target of a link; the temporary name
  std::optional<Unfinished> unfinished;
  bool streamed = false;
  int descriptor = -1;
};

void writeFile(const std::string &file, std::string_view contents, bool executable = false);
// 16 random hexadecimal digits, for a name that nobody can foresee.
std::string randomDigits();
// Throws what writeFile would throw at once, and keeps the command from reading the file from now on: to be called
// before what takes time.
void checkWritable(const std::string &file);
// Removes from a folder the temporary files that writers left when they ended without commit(), if isOurs(name) holds
// for the name of the final file. Files that a process is still writing stay.
void removeAbandoned(const std::string &folder, const std::function<bool(std::string_view)> &isOurs);

} // namespace xfc
