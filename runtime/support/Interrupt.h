// Signals that ask a process to end, as a flag that long work looks at.
#pragma once

#include "support/Error.h"

namespace xfc {

// Thrown by work that a signal ended: what it had begun is cleaned up on the way out.
struct Interrupted : Error {
  explicit Interrupted(int signal);
  int signal;
};

// While it lives, the first SIGINT, SIGTERM or SIGHUP is noted and a second one ends the process at once. A SIGHUP that
// is ignored (nohup) stays so.
class InterruptGuard {
public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard &) = delete;
};

// The signal that was noted, or 0.
int interrupted();
// Throws Interrupted if there was one.
void checkInterrupted();

} // namespace xfc
