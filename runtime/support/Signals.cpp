// What signals mean to our programs: one table for all of them.
#include "support/Signals.h"
#include "support/MappedFile.h"
#include "support/Unfinished.h"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>

namespace xfc {
namespace {

enum class Meaning {
  Stop,     // asks the process to end; a guard notes it
  StopSoon, // the same, from the system, which repeats it
  End,
  Save,
  Failure, // of whatever is written, where the process goes on
  CutOff,
};

constexpr struct {
  int signal;
  Meaning meaning;
} table[] = {
    {SIGINT, Meaning::Stop},     {SIGTERM, Meaning::Stop},    {SIGHUP, Meaning::Stop},   {SIGXCPU, Meaning::StopSoon},
    {SIGQUIT, Meaning::End},     {SIGALRM, Meaning::End},     {SIGVTALRM, Meaning::End}, {SIGPROF, Meaning::End},
    {SIGUSR2, Meaning::End},     {SIGIO, Meaning::End},       {SIGPWR, Meaning::End},    {SIGUSR1, Meaning::Save},
    {SIGPIPE, Meaning::Failure}, {SIGXFSZ, Meaning::Failure}, {SIGBUS, Meaning::CutOff},
};

volatile std::sig_atomic_t noted = 0, saveNoted = 0, reloadNoted = 0;
volatile std::sig_atomic_t wake = -1;      // the descriptor of a guard that serves
struct sigaction before[std::size(table)]; // a guard, of those that it notes

bool isNoted(size_t row) { return table[row].meaning == Meaning::Stop || table[row].meaning == Meaning::StopSoon; }

// The handlers use only async-signal-safe functions.

// The signal is blocked until this returns, and then ends the process.
void removeAndEnd(int signal) {
  Unfinished::removeAll();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void wakeUp() {
  const int before = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake, &one, sizeof one); // it fails if the number is large already
  errno = before;
}

void note(int signal) {
  if (wake >= 0 && signal == SIGHUP) {
    reloadNoted = 1;
    wakeUp();
    return;
  }
  if (noted == 0)
    noted = signal;
  if (wake >= 0)
    wakeUp();
  if (signal == SIGXCPU)
    return;
  for (size_t i = 0; i < std::size(table); ++i)
    if (table[i].meaning != Meaning::Stop)
      continue;
    else if (before[i].sa_handler != SIG_IGN)
      sigaction(table[i].signal, &before[i], nullptr);
    else if (table[i].signal != SIGHUP)
      std::signal(table[i].signal, SIG_DFL);
}

void noteSave(int) { saveNoted = 1; }

// Of a signal whose disposition nobody has changed.
void endBy(int signal) {
  struct sigaction action{}, found{};
  action.sa_handler = removeAndEnd;
  sigfillset(&action.sa_mask);
  if (sigaction(signal, nullptr, &found) == 0 && found.sa_handler == SIG_DFL)
    sigaction(signal, &action, nullptr);
}

} // namespace

void installSignals() {
  Unfinished::removeFromHere();
  for (const auto &[signal, meaning] : table)
    switch (meaning) {
    case Meaning::Stop:
    case Meaning::StopSoon:
    case Meaning::End:
      endBy(signal);
      break;
    case Meaning::Save: {
      struct sigaction action{};
      action.sa_handler = noteSave;
      action.sa_flags = SA_RESTART; // interrupted reads and writes are restarted
      sigaction(signal, &action, nullptr);
      break;
    }
    case Meaning::Failure:
      std::signal(signal, SIG_IGN);
      break;
    case Meaning::CutOff:
      endWhereFilesAreCutOff();
      break;
    }
}

Interrupted::Interrupted(int signal) : Error(std::string("stopped: ") + strsignal(signal)), signal(signal) {}

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  sigfillset(&all);
  for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
    sigdelset(&all, own);
  pthread_sigmask(SIG_BLOCK, &all, &before);
}
SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }

InterruptGuard::InterruptGuard(int wakeDescriptor) {
  noted = 0;
  reloadNoted = 0;
  wake = wakeDescriptor;
  struct sigaction action{};
  action.sa_handler = note; // without SA_RESTART: a read that waits for input returns
  for (size_t i = 0; i < std::size(table); ++i)
    sigaction(table[i].signal, nullptr, &before[i]); // all of them first, as the handler reads them
  for (size_t i = 0; i < std::size(table); ++i) {
    const bool staysIgnored =
        before[i].sa_handler == SIG_IGN && table[i].signal != SIGINT && table[i].signal != SIGTERM;
    if (isNoted(i) && !staysIgnored)
      sigaction(table[i].signal, &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < std::size(table); ++i)
    if (isNoted(i))
      sigaction(table[i].signal, &before[i], nullptr);
  if (noted) // the process is about to end by itself
    std::signal(SIGXCPU, SIG_IGN);
  wake = -1;
}

void leaveTimeToSave(int threads) {
  rlimit limit{};
  if (getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY || limit.rlim_cur < limit.rlim_max)
    return;
  limit.rlim_cur -= std::min<rlim_t>(10 * static_cast<rlim_t>(threads), limit.rlim_max / 4);
  setrlimit(RLIMIT_CPU, &limit);
}

int interrupted() { return noted; }

void checkInterrupted() {
  if (noted)
    throw Interrupted(noted);
}

static bool taken(volatile std::sig_atomic_t &note) {
  const bool was = note != 0;
  if (was)
    note = 0;
  return was;
}

bool saveRequested() { return taken(saveNoted); }
bool reloadRequested() { return taken(reloadNoted); }

} // namespace xfc
