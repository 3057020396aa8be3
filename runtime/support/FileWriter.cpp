// Writes files atomically.
#include "support/FileWriter.h"
#include "support/Descriptor.h"
#include "support/Files.h"
#include "support/Signals.h"
#include "support/Terminal.h"
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/file.h>
#include <sys/random.h>
#include <utility>

namespace xfc {

// Separates a file's name from the random digits in its temporary name.
static constexpr std::string_view partialMark = ".partial.";

std::string randomDigits() {
  uint64_t number = 0;
  if (retried([&] { return ::getrandom(&number, sizeof number, 0); }) != sizeof number)
    throw Error(std::string("cannot get random numbers from the system: ") + std::strerror(errno));
  constexpr char digits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (char &digit : text) {
    digit = digits[number & 15];
    number >>= 4;
  }
  return text;
}

void FileWriter::fail() const { failOn(name, "write"); }

FileWriter::FileWriter(const std::string &name, bool executable) : opened(name), name(name), file(name) {
  struct stat info{};
  const bool there = ::stat(name.c_str(), &info) == 0;
  if (there && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    fail();
  }
  streamed = there && !S_ISREG(info.st_mode);
  if (streamed) {
    descriptor = retried([&] { return ::open(name.c_str(), O_WRONLY | O_CLOEXEC); });
    if (descriptor < 0)
      fail();
    return;
  }
  std::error_code none;
  if (there)
    if (std::filesystem::path real = std::filesystem::canonical(name, none); !real.empty())
      file = real;
  // Never grant more permissions than the replaced file has, nor anybody's rights to what is written now.
  mode_t mode = executable ? 0777 : 0666;
  if (there)
    mode = (info.st_mode & 0777) | (executable ? 0111 : 0);
  do {
    partial = file + std::string(partialMark) + randomDigits();
    unfinished.emplace(partial);
    descriptor =
        retried([&] { return ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode); });
  } while (descriptor < 0 && errno == EEXIST);
  if (descriptor < 0) {
    partial.clear();
    fail();
  }
  ::flock(descriptor, LOCK_EX | LOCK_NB); // shows that the writer is alive, if the file system supports locks
  if (there && ::fchmod(descriptor, mode) != 0) {
    // A file system without permissions: there are none to lose.
  }
}

FileWriter::~FileWriter() {
  if (!partial.empty())
    ::unlink(partial.c_str());
  if (descriptor >= 0)
    ::close(descriptor);
}

void FileWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = retried([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (wrote < 0)
      fail();
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
}

void FileWriter::sync() const {
  if (!streamed && retried([&] { return ::fsync(descriptor); }) != 0 && errno != EINVAL && errno != EROFS)
    fail();
}

void FileWriter::commitTogether(std::span<FileWriter *const> writers) {
  for (const FileWriter *writer : writers)
    writer->sync();
  for (const FileWriter *writer : writers)
    if (!writer->streamed && ::unlink(writer->file.c_str()) != 0 && errno != ENOENT)
      writer->fail();
  for (FileWriter *writer : writers)
    writer->commit();
}

void FileWriter::commit(const std::string &previous) {
  if (streamed)
    return;
  sync();
  if (!previous.empty() && retried([&] { return ::rename(file.c_str(), previous.c_str()); }) != 0 && errno != ENOENT)
    fail();
  if (retried([&] { return ::rename(partial.c_str(), file.c_str()); }) != 0)
    fail();
  partial.clear();
  unfinished.reset();
  outputIsComplete(name);
  if (!syncFolder(folderOf(file)))
    fail();
}

void writeFile(const std::string &name, std::string_view contents, bool executable) {
  FileWriter writer(name, executable);
  writer.write(contents);
  writer.commit();
}

void checkWritable(const std::string &name) {
  announceOutput(name);
  struct stat info{};
  if (::stat(name.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    if (::access(name.c_str(), W_OK) != 0) // not opened: the reader of a pipe would see its end
      failOn(name, "write");
    return;
  }
  FileWriter writer(name);
}

void removeAbandoned(const std::string &folder, const std::function<bool(std::string_view)> &isOurs) {
  // A folder may be one that can be searched, but not read. What is left there only takes space.
  if (::access(folder.c_str(), R_OK) != 0 && errno == EACCES)
    return;
  for (const std::string &name : namesIn(folder)) {
    const std::string file = folder + "/" + name;
    const size_t mark = name.rfind(partialMark);
    if (mark == std::string::npos || !isOurs(std::string_view(name).substr(0, mark)))
      continue;
    const std::string_view digits = std::string_view(name).substr(mark + partialMark.size());
    if (digits.empty() || digits.size() > 16 || digits.find_first_not_of("0123456789abcdef") != std::string_view::npos)
      continue;
    Descriptor opened(retried([&] { return ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK); }));
    struct stat info{};
    if (opened.fd >= 0 && ::fstat(opened.fd, &info) == 0 && S_ISREG(info.st_mode) &&
        (::flock(opened.fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK))
      ::unlink(file.c_str());
  }
}

} // namespace xfc
