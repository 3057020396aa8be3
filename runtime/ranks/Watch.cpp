// Says which rank was lost.
#include "ranks/Watch.h"
#include "support/Files.h"
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <sstream>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace xfc {
namespace {

// glibc has a function for this only since 2.34.
bool closeAll(unsigned first, unsigned last) { return first > last || syscall(SYS_close_range, first, last, 0) == 0; }

// Processes for which this is the same text can connect to each other; "" if it is unknown. Machines may have the same
// name, and containers networks of their own.
std::string network() {
  std::error_code none;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/net", none).string();
  try {
    return space.empty() ? "" : space + " " + readFile("/proc/sys/kernel/random/boot_id");
  } catch (const Error &) {
    return "";
  }
}

// Connects to a helper; -1 if that fails.
int connectTo(const std::string &address) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  address.copy(to.sun_path, sizeof to.sun_path);
  const int link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  if (!address.empty() && connect(link, reinterpret_cast<const sockaddr *>(&to), size) == 0)
    return link;
  close(link);
  return -1;
}

// The same connection under a number above those of all others that a process usually has: when it ends, the system
// closes the one with the highest number first.
int above(int link) {
  rlimit most{};
  if (link < 0 || getrlimit(RLIMIT_NOFILE, &most) != 0)
    return link;
  const int high = fcntl(link, F_DUPFD_CLOEXEC, static_cast<int>(std::min<rlim_t>(most.rlim_cur, 1024)) - 1);
  if (high < 0)
    return link;
  close(link);
  return high;
}

// A rank, as the helper knows it.
struct Watched {
  pid_t process;
  std::string received;
};

// The process at the other end, if this user's; otherwise 0.
pid_t peerOf(int link) {
  ucred who{};
  socklen_t size = sizeof who;
  return getsockopt(link, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid() ? who.pid : 0;
}

// Whether a process has begun to end, or is no more.
bool isEnding(pid_t process) {
  std::string stat;
  try {
    stat = readFile("/proc/" + std::to_string(process) + "/stat");
  } catch (const Error &) {
    return true;
  }
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string field;
  for (int before = 0; before < 6; ++before)
    fields >> field;
  unsigned flags = 0;
  constexpr unsigned exiting = 4; // PF_EXITING
  return fields >> flags && (flags & exiting) != 0;
}

// A rank first sends the helper a line: its name, a tab, and what to say if it is lost. Later it sends one of these.
constexpr char endsWatch = '.', exits = '!';

// The connection of a process that is watched, or -1.
int watched = -1;

// A rank that is watched exits only where MPI has failed, because it has lost another one.
void tellExit() {
  if (watched >= 0)
    send(watched, &exits, 1, MSG_NOSIGNAL);
}

// The helper's work.
void watch(int listener) {
  setsid(); // signals to the ranks' group, from a terminal or the launcher, are not for it
  if (!closeAll(0, 1) || !closeAll(3, listener - 1) || !closeAll(listener + 1, ~0U))
    return;
  const int events = epoll_create1(0);
  std::map<int, Watched> links;
  for (int added = listener;;) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = added}};
    if (added >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, added, &event) != 0)
      return;
    added = -1;
    if (epoll_wait(events, &event, 1, -1) != 1) {
      if (errno == EINTR)
        continue;
      return;
    }
    const int link = event.data.fd;
    if (link == listener) {
      added = accept(listener, nullptr, nullptr);
      if (const pid_t process = added >= 0 ? peerOf(added) : 0; process > 0)
        links[added].process = process;
      else if (added >= 0)
        close(std::exchange(added, -1));
      continue;
    }
    std::string &received = links[link].received;
    char part[512];
    ssize_t got = 0;
    while ((got = recv(link, part, sizeof part, MSG_DONTWAIT)) > 0)
      received.append(part, got);
    const bool closed = got == 0 || (errno != EAGAIN && errno != EINTR);
    if (received.ends_with(endsWatch))
      return;
    if (!closed && !received.ends_with(exits))
      continue;
    std::string names, says;
    for (const auto &[number, rank] : links)
      if (rank.received.ends_with('\n') && ((closed && number == link) || isEnding(rank.process))) {
        names += (names.empty() ? "" : " or ") + rank.received.substr(0, rank.received.find('\t'));
        says = rank.received.substr(rank.received.find('\t') + 1);
      }
    if (!names.empty()) {
      std::fprintf(stderr, "error: %s %s", names.c_str(), says.c_str());
      return;
    }
    if (!closed)
      continue;
    close(link);
    links.erase(link);
    if (links.empty())
      return;
  }
}

} // namespace

Watch::Watch() {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const bool listens = bind(listener, reinterpret_cast<const sockaddr *>(&at), sizeof at.sun_family) == 0 &&
                       listen(listener, SOMAXCONN) == 0; // under a name that the system chooses, which is no file
  socklen_t size = sizeof at;
  if (listens && getsockname(listener, reinterpret_cast<sockaddr *>(&at), &size) == 0)
    address.assign(at.sun_path, size - offsetof(sockaddr_un, sun_path));
  link = connectTo(address); // by which the helper finds that this process has ended
  if (link >= 0)
    helper = fork();
  if (helper == 0) {
    watch(listener);
    _exit(0);
  }
  close(listener);
}

Watch::~Watch() {
  stop();
  leave();
}

void Watch::begin(Ranks &ranks) {
  const std::vector<std::string> networks = ranks.gather(network()), addresses = ranks.gather(address);
  const std::string &own = networks[ranks.rank()];
  const auto lowest = static_cast<int>(std::ranges::find(networks, own) - networks.begin());
  if (lowest != ranks.rank()) {
    leave();
    link = own.empty() ? -1 : connectTo(addresses[lowest]);
  }
  link = above(link);
  const std::string says = ranks.nameOf(ranks.rank()) + "\t" +
                           (std::ranges::count(networks, own) == ranks.size()
                                ? "was killed or has crashed"
                                : "is the first process of the run to end on its machine: it was killed or has "
                                  "crashed, or the launcher ended it because of one on another machine") +
                           "; all others end, too; continue the run with --resume\n";
  const bool sent = !own.empty() && send(link, says.data(), says.size(), MSG_NOSIGNAL) == std::ssize(says);
  if (ranks.largest(!sent) > 0)
    return stop();
  watched = link;
  std::atexit(tellExit);
}

void Watch::stop() {
  watched = -1;
  if (link >= 0)
    send(link, &endsWatch, 1, MSG_NOSIGNAL);
}

// Leaves the helper that this process is connected with. Its own one ends if it has nothing to watch, or was stopped.
void Watch::leave() {
  if (link >= 0)
    close(std::exchange(link, -1));
  while (helper > 0 && waitpid(helper, nullptr, 0) < 0 && errno == EINTR) {
  }
  helper = -1;
}

} // namespace xfc
