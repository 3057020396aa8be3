// Turns signals that ask a process to end into a flag that long-running work polls.
#pragma once

#include "support/Error.h"

namespace xfc {

// Thrown when a signal interrupts the work, so that unwinding cleans up.
struct Interrupted : Error {
  explicit Interrupted(int signal);
  int signal;
};

// During its lifetime the first SIGINT, SIGTERM or SIGHUP is recorded, and a second one does what it did before, or
// ends the process if it was ignored. A SIGHUP that was ignored (nohup) stays ignored.
class InterruptGuard {
public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard &) = delete;
};

// The recorded signal, or 0.
int interrupted();
// Throws Interrupted if a signal was recorded.
void checkInterrupted();

} // namespace xfc
