// Files as memory.
#include "support/MappedFile.h"
#include "support/Descriptor.h"
#include "support/Files.h"
#include "support/Unfinished.h"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <utility>

namespace xfc {

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
    failOn(file, "map");
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

} // namespace xfc
