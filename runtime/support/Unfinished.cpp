// Keeps the names of unfinished files and folders where a signal handler can read them.
#include "support/Unfinished.h"
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace xfc {

// Entries are used again, but never freed or moved, so that a handler may walk over them at any moment. Who changes
// `state` from `Held` owns the entry: one that a handler has taken stays as it is, since the process is about to end.
struct Unfinished::Entry {
  enum State { Free, Claimed, Held, Taken };
  std::atomic<int> state = Claimed;
  Entry *next = nullptr;
  char path[PATH_MAX];
};

namespace {

// Zero-initialized, so objects that are made before main() can use it.
std::atomic<void *> newest = nullptr;
std::atomic<bool> ending = false;
pid_t owner = 0; // the process that removes; one that it forks leaves its files alone

bool becomes(std::atomic<int> &state, int from, int to) { return state.compare_exchange_strong(from, to); }

// Removes a file, or a folder with all that is in it. Other threads may still be writing into the folder.
void remove(int parent, const char *path) {
  if (::unlinkat(parent, path, 0) == 0 || (errno != EISDIR && errno != EPERM))
    return;
  constexpr int mostTries = 100;
  for (int i = 0; i < mostTries && ::unlinkat(parent, path, AT_REMOVEDIR) != 0 && errno == ENOTEMPTY; ++i) {
    const int folder = ::openat(parent, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
      return;
    alignas(dirent64) char buffer[4096];
    for (ssize_t got; (got = ::getdents64(folder, buffer, sizeof buffer)) > 0;)
      for (ssize_t at = 0; at < got;) {
        const auto *entry = reinterpret_cast<const dirent64 *>(buffer + at);
        if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
          remove(folder, entry->d_name);
        at += entry->d_reclen;
      }
    ::close(folder);
  }
}

} // namespace

Unfinished::Unfinished(const std::string &path) : entry(nullptr) {
  if (path.size() >= sizeof entry->path)
    return;
  auto *const first = static_cast<Entry *>(newest.load());
  for (entry = first; entry && !becomes(entry->state, Entry::Free, Entry::Claimed);)
    entry = entry->next;
  if (!entry) {
    entry = new Entry;
    void *head = first;
    do
      entry->next = static_cast<Entry *>(head);
    while (!newest.compare_exchange_weak(head, entry));
  }
  std::memcpy(entry->path, path.c_str(), path.size() + 1);
  entry->state = Entry::Held;
}

Unfinished::~Unfinished() {
  if (entry)
    becomes(entry->state, Entry::Held, Entry::Free);
}

void Unfinished::removeAll() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  if (::getpid() != owner)
    return;
  while (ending.exchange(true)) // another thread removes, and ends the process
    ::pause();
  for (auto *entry = static_cast<Entry *>(newest.load()); entry; entry = entry->next)
    if (becomes(entry->state, Entry::Held, Entry::Taken))
      remove(AT_FDCWD, entry->path);
}

void Unfinished::removeFromHere() { owner = ::getpid(); }

} // namespace xfc
