// Turns SIGUSR1, which asks a process to save its state and continue, into a flag.
#include "support/SaveRequest.h"

namespace xfc {

static volatile std::sig_atomic_t noted = 0;

SaveRequestGuard::SaveRequestGuard() {
  noted = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { noted = 1; };
  action.sa_flags = SA_RESTART; // interrupted reads and writes are restarted
  sigaction(SIGUSR1, &action, &before);
}

SaveRequestGuard::~SaveRequestGuard() { sigaction(SIGUSR1, &before, nullptr); }

bool saveRequested() {
  const bool was = noted != 0;
  if (was)
    noted = 0;
  return was;
}

} // namespace xfc
