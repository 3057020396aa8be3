// A signal that asks a process to save what it has, and to go on.
#include "support/SaveRequest.h"

namespace xfc {

static volatile std::sig_atomic_t noted = 0;

SaveRequestGuard::SaveRequestGuard() {
  noted = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { noted = 1; };
  action.sa_flags = SA_RESTART; // whatever is read or written meanwhile goes on
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
