// Reads files, and writes them atomically.
#include "support/Files.h"
#include "support/Compressed.h"
#include "support/Inputs.h"
#include "support/Retried.h"
#include "support/Signals.h"
#include "support/Terminal.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace xfc {

[[noreturn]] static void fail(const std::string &file, const char *doing) {
  throw Error(file + ": cannot " + doing + ": " + std::strerror(errno));
}

namespace {
struct Descriptor {
  int fd;
  explicit Descriptor(int fd) : fd(fd) {}
  // Opens the file for reading.
  explicit Descriptor(const std::string &file)
      : fd((announceInput(file), retried([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC); }))) {
    if (fd < 0)
      fail(file, "open");
  }
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
};
} // namespace

// Opens a file that is to be read as a whole, if it is of a kind that readFile reads. Opening does not wait, as it
// would for the writer of a named pipe.
static int openWhole(const std::string &file, struct stat &info) {
  const int fd = retried([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0)
    fail(file, "open");
  Descriptor opened(fd);
  if (::fstat(fd, &info) != 0)
    fail(file, "read");
  if (S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    fail(file, "read");
  }
  const bool passed = S_ISFIFO(info.st_mode) && file.starts_with("/dev/");
  if (!S_ISREG(info.st_mode) && !passed)
    throw Error(file + ": is a device, a pipe or a socket; expected a file");
  if (::fcntl(fd, F_SETFL, 0) != 0) // reading waits
    fail(file, "read");
  announceInput(file);
  opened.fd = -1;
  return fd;
}

// Reads `fd` to its end, or throws Error if there are more than `most` bytes; `file` is for messages.
static std::string readAll(int fd, const struct stat &info, const std::string &file, size_t most) {
  const auto refuse = [&] {
    throw Error(file + ": larger than " + std::to_string(most >> 20) + " MB; no file of this use is that large");
  };
  if (info.st_size > 0 && static_cast<size_t>(info.st_size) > most)
    refuse();
  // If the size is known, one extra byte of room lets the next read detect the end; a pipe reports no size.
  std::string contents(info.st_size > 0 ? info.st_size + 1 : 1 << 16, '\0');
  for (size_t size = 0;;) {
    if (size > most)
      refuse();
    const ssize_t got = retried([&] { return ::read(fd, contents.data() + size, contents.size() - size); });
    if (got < 0)
      fail(file, "read");
    size += got;
    if (got == 0) {
      contents.resize(size);
      return contents;
    }
    if (size == contents.size())
      contents.resize(2 * size);
  }
}

std::string readFile(const std::string &file, size_t most) {
  struct stat info{};
  const Descriptor in(openWhole(file, info));
  return readAll(in.fd, info, file, most);
}

namespace {

// The mapped files that a signal handler can name; of more than these, the others stay unnamed. An entry is in use
// while its `begin` is not null.
struct NamedPages {
  std::atomic<const char *> begin = nullptr;
  std::atomic<size_t> size = 0;
  std::atomic<const char *> name = nullptr;
};
NamedPages namedPages[256];
std::mutex namingPages;

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, text.data(), text.size());
}

// The SIGBUS handler: a mapped page beyond the end of a truncated file was accessed.
void endCutOff(int, siginfo_t *info, void *) {
  Unfinished::removeAll();
  const char *name = "a file", *const at = static_cast<const char *>(info->si_addr);
  for (const NamedPages &pages : namedPages)
    if (const char *begin = pages.begin; begin && at >= begin && at < begin + pages.size)
      name = pages.name;
  say("error: ");
  say(name);
  say(" was truncated while in use; replace files by renaming new ones over them, and start again\n");
  _exit(1);
}

} // namespace

// The file as it was when it was mapped, and its entry among those that a signal handler can name.
struct MappedFile::Origin {
  std::string name;
  struct stat info;
  NamedPages *pages = nullptr;

  Origin(std::string file, const struct stat &info, const char *begin, size_t size)
      : name(std::move(file)), info(info) {
    const std::lock_guard guard(namingPages);
    for (NamedPages &free : namedPages)
      if (!free.begin) {
        pages = &free;
        pages->name = name.c_str();
        pages->size = size;
        pages->begin = begin;
        return;
      }
  }
  ~Origin() {
    if (pages)
      pages->begin = nullptr;
  }
};

void endWhereFilesAreCutOff() {
  struct sigaction action{};
  action.sa_sigaction = endCutOff;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

// Maps zeroed pages for this many bytes and 128 more.
void MappedFile::reserve(uint64_t bytes) {
  mapped = bytes + 128;
  pages = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    pages = nullptr;
    throw Error("out of memory: " + std::to_string(bytes) + " bytes for a file cannot be allocated");
  }
}

void MappedFile::map(int descriptor, const std::string &file, uint64_t offset, uint64_t bytes) {
  const uint64_t inPage = offset % static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  reserve(inPage + bytes);
  if (bytes > 0 && ::mmap(pages, inPage + bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_PRIVATE | MAP_FIXED,
                          descriptor, static_cast<off_t>(offset - inPage)) == MAP_FAILED) {
    ::munmap(std::exchange(pages, nullptr), mapped);
    fail(file, "map");
  }
  begin = static_cast<char *>(pages) + inPage;
  size = bytes;
  fromFile = true;
  if (struct stat info{}; bytes > 0 && ::fstat(descriptor, &info) == 0)
    origin = std::make_unique<Origin>(file, info, begin, size);
}

void MappedFile::requireUnchanged(bool byName) const {
  struct stat now{};
  if (!origin)
    return;
  const struct stat &then = origin->info;
  const bool there = ::stat(origin->name.c_str(), &now) == 0; // removed: the pages stay as they are
  const bool same = there && now.st_dev == then.st_dev && now.st_ino == then.st_ino;
  if (byName && !same)
    throw Error(origin->name + ": was replaced while in use; start again");
  if (same && (now.st_size != then.st_size || now.st_mtim.tv_sec != then.st_mtim.tv_sec ||
               now.st_mtim.tv_nsec != then.st_mtim.tv_nsec))
    throw Error(origin->name + ": was written to while in use; replace files by renaming new ones over them, and start "
                               "again");
}

MappedFile::MappedFile(const std::string &file) : MappedFile(file, true) {}

MappedFile MappedFile::readOnly(const std::string &file) { return {file, false}; }

MappedFile::MappedFile(const std::string &file, bool writable) : writable(writable) {
  struct stat info{};
  const Descriptor in(openWhole(file, info));
  if (S_ISREG(info.st_mode)) {
    map(in.fd, file, 0, static_cast<uint64_t>(info.st_size));
    return;
  }
  const std::string bytes =
      readAll(in.fd, info, file, static_cast<size_t>(-1)); // a pipe cannot be mapped, and can be read only once
  reserve(bytes.size());
  begin = static_cast<char *>(pages);
  size = bytes.size();
  std::memcpy(begin, bytes.data(), size);
}

MappedFile::MappedFile(const std::string &file, uint64_t offset, uint64_t size) {
  struct stat info{};
  map(Descriptor(openWhole(file, info)).fd, file, offset, size);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : pages(std::exchange(other.pages, nullptr)), mapped(other.mapped), size(std::exchange(other.size, 0)),
      begin(other.begin), writable(other.writable), fromFile(other.fromFile), origin(std::move(other.origin)) {}

void MappedFile::release() const {
  if (!writable && fromFile) // otherwise the pages hold the only copy
    ::madvise(pages, mapped, MADV_DONTNEED);
}

void MappedFile::releaseUnwritten(std::string_view part) const {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)),
                  from = reinterpret_cast<uintptr_t>(part.data()), first = (from + page - 1) / page * page,
                  end = (from + part.size()) / page * page;
  if (fromFile && first < end)
    ::madvise(reinterpret_cast<void *>(first), end - first, MADV_DONTNEED);
}

void MappedFile::releaseBehind(std::string_view part) const {
  constexpr size_t megabyte = 1 << 20;
  const size_t from = part.data() - begin, first = from / megabyte * megabyte,
               end = (from + part.size()) / megabyte * megabyte;
  if (first < end)
    releaseUnwritten(contents().substr(first, end - first));
}

void MappedFile::bringIn(std::string_view part) const {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)),
                  from = reinterpret_cast<uintptr_t>(part.data()), first = from / page * page;
  if (fromFile && writable && !part.empty())
    ::madvise(reinterpret_cast<void *>(first), from + part.size() - first, MADV_POPULATE_WRITE);
}

MappedFile::~MappedFile() {
  origin.reset(); // before the addresses belong to others
  if (pages)
    ::munmap(pages, mapped);
}

static std::string folderOf(const std::string &file) {
  size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

// Some file systems cannot sync a folder, and a folder that the process may search but not read cannot be opened: the
// files in it are complete either way.
bool syncFolder(const std::string &folder) {
  Descriptor opened(retried([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (opened.fd < 0)
    return errno == EACCES;
  return retried([&] { return ::fsync(opened.fd); }) == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP;
}

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

void FileWriter::fail() const { xfc::fail(name, "write"); }

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
      fail(name, "write");
    return;
  }
  FileWriter writer(name);
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

FileLock::FileLock(const std::string &file, const std::string &what) : file(file) {
  for (;;) {
    descriptor = retried([&] { return ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666); });
    if (descriptor < 0)
      fail(file, "write");
    if (retried([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK) {
      char text[400];
      const ssize_t got = retried([&] { return ::read(descriptor, text, sizeof text); });
      std::string holder(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
      std::erase_if(holder, [](unsigned char byte) { return byte < 0x20 || byte > 0x7E; });
      ::close(std::exchange(descriptor, -1));
      throw Error(what + (holder.empty() ? "another process" : holder));
    }
    // The previous holder may have removed the file meanwhile; only a lock on the file that is now at this path counts.
    struct stat ours{}, there{};
    if (::fstat(descriptor, &ours) == 0 && ::stat(file.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
        ours.st_dev == there.st_dev)
      break;
    ::close(descriptor);
  }
  unfinished.emplace(file);
  char host[256] = "an unknown host";
  ::gethostname(host, sizeof host - 1);
  const std::string holder = "process " + std::to_string(::getpid()) + " on " + host + "\n";
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, holder.data(), holder.size(), 0) < 0) {
    // A full disk: the lock holds, but does not name its holder.
  }
}

FileLock::~FileLock() {
  if (descriptor < 0)
    return;
  ::unlink(file.c_str());
  unfinished.reset(); // before the lock: from then on, a file of that name is another process's
  ::close(descriptor);
}

size_t invalidUtf8(std::string_view line) {
  for (size_t i = 0; i < line.size();) {
    auto byte = [&](size_t at) { return at < line.size() ? static_cast<unsigned char>(line[at]) : 0u; };
    unsigned lead = byte(i);
    int length = lead < 0x80                   ? 1
                 : lead >= 0xC2 && lead < 0xE0 ? 2
                 : lead >= 0xE0 && lead < 0xF0 ? 3
                 : lead >= 0xF0 && lead < 0xF5 ? 4
                                               : 0;
    if (length == 0)
      return i;
    for (int k = 1; k < length; ++k)
      if ((byte(i + k) & 0xC0) != 0x80)
        return i;
    if ((lead == 0xE0 && byte(i + 1) < 0xA0) || (lead == 0xED && byte(i + 1) >= 0xA0) ||
        (lead == 0xF0 && byte(i + 1) < 0x90) || (lead == 0xF4 && byte(i + 1) >= 0x90))
      return i;
    i += length;
  }
  return std::string_view::npos;
}

LineReader::LineReader(const std::string &name, size_t longest)
    : file(name == "-" ? "standard input" : name), buffer(1 << 16, '\0'), longest(longest),
      descriptor((announceInput(name), name == "-") ? STDIN_FILENO : retried([&] {
        return ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
      })) {
  if (descriptor < 0)
    fail(file, "open");
  struct stat info{};
  if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode))
    size = info.st_size;
}

LineReader::~LineReader() {
  if (descriptor > STDIN_FILENO)
    ::close(descriptor);
}

// Reads bytes of the file and returns how many; 0 at its end.
size_t LineReader::readInto(char *to, size_t room) {
  while (!inputEnded) {
    const ssize_t got = ::read(descriptor, to, room);
    if (got < 0 && errno == EINTR) {
      checkInterrupted();
      continue;
    }
    if (got < 0)
      fail(file, "read");
    inputEnded = got == 0;
    bytes += got;
    return static_cast<size_t>(got);
  }
  return 0;
}

// Reads only as much as is needed to tell whether the file is compressed: of an interactive stream, at most its first
// lines.
bool isCompressed(const std::string &file) {
  const Descriptor in(file);
  char beginning[16];
  const ssize_t got = retried([&] { return ::read(in.fd, beginning, sizeof beginning); });
  if (got < 0)
    fail(file, "read");
  return Decompressor::of({beginning, static_cast<size_t>(got)}, file) != nullptr;
}

void LineReader::recognize() {
  begun = true;
  while (end < buffer.size() && Decompressor::mayFollow({buffer.data(), end})) {
    const size_t got = readInto(buffer.data() + end, buffer.size() - end);
    if (got == 0)
      break;
    end += got;
  }
  decompressor = Decompressor::of({buffer.data(), end}, file);
  if (decompressor) {
    packed = buffer;
    packedEnd = std::exchange(end, 0);
  }
}

size_t LineReader::decompressInto(char *to, size_t room) {
  for (;;) {
    std::string_view in(packed.data() + packedBegin, packedEnd - packedBegin);
    const size_t before = in.size(), written = decompressor->run(in, to, room);
    packedBegin = packedEnd - in.size();
    if (written > 0)
      return written;
    if (!in.empty() && in.size() < before)
      continue;
    if (in.empty()) {
      packedBegin = 0;
      packedEnd = readInto(packed.data(), packed.size());
      if (packedEnd > 0)
        continue;
    }
    if (!decompressor->atEnd())
      throw Error(file + ": damaged: its compressed data is cut off; copy it again, or compress it again");
    return 0;
  }
}

// Refills the buffer, which has been read to its end; false at the end of the file.
bool LineReader::fill() {
  begin = end = 0;
  if (!begun)
    recognize();
  if (end == 0 && !atEnd)
    end = decompressor ? decompressInto(buffer.data(), buffer.size()) : readInto(buffer.data(), buffer.size());
  atEnd = end == 0;
  return end > 0;
}

bool LineReader::ready(int milliseconds) const {
  if (atEnd || packedBegin < packedEnd || std::memchr(buffer.data() + begin, '\n', end - begin))
    return true;
  pollfd waiting{descriptor, POLLIN, 0};
  return retried([&] { return ::poll(&waiting, 1, milliseconds); }) != 0;
}

std::string LineReader::where() const { return file + ":" + std::to_string(lines); }

double LineReader::fraction() const {
  return size > 0
             ? std::min(1.0, static_cast<double>(
                                 bytes - static_cast<int64_t>(decompressor ? packedEnd - packedBegin : end - begin)) /
                                 static_cast<double>(size))
             : 0;
}

bool LineReader::next(std::string &line) {
  line.clear();
  bool wasCut = false;
  if (begin == end && !fill())
    return false;
  ++lines;
  for (bool whole = false; !whole && (begin < end || fill());) {
    const char *from = buffer.data() + begin;
    const auto *found = static_cast<const char *>(std::memchr(from, '\n', end - begin));
    const size_t length = found ? static_cast<size_t>(found - from) : end - begin;
    const size_t taken = std::min(length, longest - line.size());
    line.append(from, taken);
    wasCut |= taken < length;
    whole = found != nullptr;
    begin += length + whole;
  }
  if (wasCut)
    std::fprintf(stderr, "%s: %s: the line is cut to its first %zu bytes\n", nameOf(MessageKind::Warning),
                 where().c_str(), longest);
  if (wasCut) // a character that was cut in two goes entirely
    while (!line.empty() && (line.back() & 0xC0) == 0x80)
      line.pop_back();
  if (wasCut && !line.empty() && (line.back() & 0x80) != 0)
    line.pop_back();
  if (!wasCut && !line.empty() && line.back() == '\r')
    line.pop_back();
  if (size_t bad = invalidUtf8(line); bad != std::string_view::npos)
    throw Error(where() + ": byte " + std::to_string(bad + 1) +
                " is not valid UTF-8; convert the file, for example with iconv");
  return true;
}

std::vector<std::string> readLines(const std::string &file) {
  LineReader reader(file);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);)
    lines.push_back(line);
  return lines;
}

void makeFolder(const std::string &folder) {
  for (size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    std::string part = folder.substr(0, slash);
    if (::mkdir(part.c_str(), 0777) == 0) {
      if (!syncFolder(folderOf(part)))
        fail(part, "create the folder");
    } else {
      int reason = errno;
      struct stat info{};
      if (::stat(part.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
        errno = reason;
        fail(part, "create the folder");
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
