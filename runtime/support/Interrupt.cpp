// Turns signals that ask a process to end into a flag that long-running work polls.
#include "support/Interrupt.h"
#include <csignal>
#include <cstring>
#include <iterator>

namespace xfc {
namespace {

constexpr int signals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction before[std::size(signals)];
volatile std::sig_atomic_t noted = 0;

// Uses only async-signal-safe functions.
void note(int signal) {
  noted = signal;
  for (size_t i = 0; i < std::size(signals); ++i)
    if (before[i].sa_handler != SIG_IGN)
      sigaction(signals[i], &before[i], nullptr);
    else if (signals[i] != SIGHUP)
      std::signal(signals[i], SIG_DFL);
}

} // namespace

Interrupted::Interrupted(int signal) : Error(std::string("stopped: ") + strsignal(signal)), signal(signal) {}

InterruptGuard::InterruptGuard() {
  noted = 0;
  struct sigaction action{};
  action.sa_handler = note; // without SA_RESTART: a read that waits for input returns
  for (size_t i = 0; i < std::size(signals); ++i)
    sigaction(signals[i], nullptr, &before[i]); // all of them first, as the handler reads them
  for (size_t i = 0; i < std::size(signals); ++i)
    if (signals[i] != SIGHUP || before[i].sa_handler != SIG_IGN)
      sigaction(signals[i], &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < std::size(signals); ++i)
    sigaction(signals[i], &before[i], nullptr);
}

int interrupted() { return noted; }

void checkInterrupted() {
  if (noted)
    throw Interrupted(noted);
}

} // namespace xfc
