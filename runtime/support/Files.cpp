// Files, whole or not at all.
#include "support/Files.h"
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
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
  // For reading.
  explicit Descriptor(const std::string &file) : fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
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

// All that is left to read of `fd`; `file` for messages.
static std::string readAll(int fd, const std::string &file) {
  struct stat info{};
  if (::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    fail(file, "read");
  }
  // Of a size that is known the end comes with one read more; a pipe tells no size.
  std::string contents(info.st_size > 0 ? info.st_size + 1 : 1 << 16, '\0');
  for (size_t size = 0;;) {
    ssize_t got = ::read(fd, contents.data() + size, contents.size() - size);
    if (got < 0 && errno == EINTR)
      continue;
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

std::string readFile(const std::string &file) { return readAll(Descriptor(file).fd, file); }

// What a page of a file that was cut off answers when it is touched.
static void endCutOff(int) {
  constexpr char message[] =
      "error: a file was cut off while it was in use; replace files of weights by renaming, and start again\n";
  [[maybe_unused]] ssize_t wrote = ::write(STDERR_FILENO, message, sizeof message - 1);
  _exit(1);
}

// Zeroed pages for so many bytes and 128 more.
void MappedFile::reserve(uint64_t bytes) {
  mapped = bytes + 128;
  pages = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    pages = nullptr;
    throw Error("out of memory: " + std::to_string(bytes) + " bytes for a file were refused");
  }
}

void MappedFile::map(int descriptor, const std::string &file, uint64_t offset, uint64_t bytes) {
  std::signal(SIGBUS, endCutOff);
  const uint64_t inPage = offset % static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  reserve(inPage + bytes);
  if (bytes > 0 && ::mmap(pages, inPage + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, descriptor,
                          static_cast<off_t>(offset - inPage)) == MAP_FAILED) {
    ::munmap(std::exchange(pages, nullptr), mapped);
    fail(file, "map");
  }
  begin = static_cast<char *>(pages) + inPage;
  size = bytes;
}

MappedFile::MappedFile(const std::string &file) {
  Descriptor in(file);
  struct stat info{};
  if (::fstat(in.fd, &info) == 0 && S_ISREG(info.st_mode)) {
    map(in.fd, file, 0, static_cast<uint64_t>(info.st_size));
    return;
  }
  const std::string bytes = readAll(in.fd, file); // a pipe has no pages to map, and is opened once
  reserve(bytes.size());
  begin = static_cast<char *>(pages);
  size = bytes.size();
  std::memcpy(begin, bytes.data(), size);
}

MappedFile::MappedFile(const std::string &file, uint64_t offset, uint64_t size) {
  map(Descriptor(file).fd, file, offset, size);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : pages(std::exchange(other.pages, nullptr)), mapped(other.mapped), size(std::exchange(other.size, 0)),
      begin(other.begin) {}

MappedFile::~MappedFile() {
  if (pages)
    ::munmap(pages, mapped);
}

static std::string folderOf(const std::string &file) {
  size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

namespace {
// Where a file is written: under a name beside it that is then renamed to it.
struct Destination {
  std::string file, partial;
  bool replaces = false; // a file that is there, and
  mode_t mode = 0;       // its permissions
  bool streamed = false; // a device or a pipe, which takes the bytes as they come

  explicit Destination(const std::string &name) : file(name) {
    struct stat info{};
    if (::stat(name.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        fail(name, "write");
      }
      replaces = S_ISREG(info.st_mode);
      streamed = !replaces;
      mode = info.st_mode & 07777;
    }
    std::error_code none;
    if (replaces)
      if (std::filesystem::path real = std::filesystem::canonical(name, none); !real.empty())
        file = real; // what a link leads to
    partial = file + ".partial." + std::to_string(::getpid());
  }
  int open(mode_t fresh) const {
    return streamed ? ::open(file.c_str(), O_WRONLY | O_CLOEXEC)
                    : ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, fresh);
  }
};
} // namespace

static bool writeAll(int fd, std::string_view contents) {
  while (!contents.empty()) {
    ssize_t wrote = ::write(fd, contents.data(), contents.size());
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote < 0)
      return false;
    contents.remove_prefix(wrote);
  }
  return true;
}

void writeFile(const std::string &name, std::string_view contents, bool executable) {
  const Destination to(name);
  auto giveUp = [&] {
    int reason = errno;
    if (!to.streamed)
      ::unlink(to.partial.c_str());
    errno = reason;
    fail(name, "write");
  };
  {
    Descriptor out(to.open(executable ? 0777 : 0666));
    if (out.fd < 0)
      fail(name, "write");
    if (!writeAll(out.fd, contents))
      giveUp();
    if (to.streamed)
      return;
    if (to.replaces && ::fchmod(out.fd, to.mode | (executable ? 0111 : 0)) != 0) {
      // A file system without permissions: none are lost.
    }
    if (::fsync(out.fd) != 0 && errno != EINVAL && errno != EROFS)
      giveUp();
  }
  if (::rename(to.partial.c_str(), to.file.c_str()) != 0)
    giveUp();
  Descriptor folder(::open(folderOf(to.file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.fd >= 0)
    ::fsync(folder.fd); // the name itself; some file systems do not offer it, and the file is whole either way
}

void checkWritable(const std::string &name) {
  const Destination to(name);
  if (to.streamed) { // not opened: whoever reads a pipe would see its end
    if (::access(name.c_str(), W_OK) != 0)
      fail(name, "write");
    return;
  }
  Descriptor out(to.open(0666));
  if (out.fd < 0)
    fail(name, "write");
  ::unlink(to.partial.c_str());
}

// The first byte of `line` that is not valid UTF-8 (RFC 3629), or npos.
static size_t invalidUtf8(std::string_view line) {
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

std::vector<std::string> readLines(const std::string &file) {
  const std::string name = file == "-" ? "standard input" : file;
  const std::string contents = file == "-" ? readAll(STDIN_FILENO, name) : readFile(file);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < contents.size();) {
    size_t end = contents.find('\n', begin);
    if (end == std::string::npos)
      end = contents.size();
    std::string_view line(contents.data() + begin, end - begin);
    if (!line.empty() && line.back() == '\r')
      line.remove_suffix(1);
    if (size_t bad = invalidUtf8(line); bad != std::string_view::npos)
      throw Error(name + ":" + std::to_string(lines.size() + 1) + ": byte " + std::to_string(bad + 1) +
                  " is not valid UTF-8; convert the file, for example with iconv");
    lines.emplace_back(line);
    begin = end + 1;
  }
  return lines;
}

void makeFolder(const std::string &folder) {
  for (size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    std::string part = folder.substr(0, slash);
    if (::mkdir(part.c_str(), 0777) != 0) {
      int reason = errno;
      struct stat info{};
      if (::stat(part.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
        errno = reason;
        fail(part, "make the folder");
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

} // namespace xfc
