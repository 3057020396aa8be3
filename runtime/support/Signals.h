// What signals mean to our programs: one table for all of them (Signals.cpp).
//
//   signal                         | from a program's first instruction on | while an InterruptGuard lives
//   -------------------------------|---------------------------------------|---------------------------------------------
//   SIGINT, SIGTERM                | remove what is unfinished and end     | noted; a second one removes and ends
//   SIGHUP                         | the same                              | the same; `serve` loads its models again
//   SIGXCPU (`ulimit -t`)          | the same                              | noted; it comes each second, to no effect
//   SIGQUIT, SIGALRM, SIGUSR2, ... | the same                              | the same
//   SIGUSR1                        | noted: `train` saves after its next step and goes on; other verbs just go on
//   SIGPIPE, SIGXFSZ (`ulimit -f`) | ignored: whatever is written to reports an error
//   SIGBUS                         | a mapped file was truncated: a message that names it, and status 1
//
// A guard lives while `train` takes steps, `serve` serves, and `bench startup` or `xfc demo` runs other programs.
//
// A signal of the first four rows that the process was started to ignore stays ignored (nohup), except that a guard
// notes SIGINT and SIGTERM all the same. Other signals keep the system's meaning. A library installs none of this.
#pragma once

#include "support/Error.h"
#include <csignal>

namespace xfc {

// From here on signals mean what the table says. For programs of our own, before anything else; again is harmless.
void installSignals();

// Thrown when a signal interrupts the work, so that unwinding cleans up.
struct Interrupted : Error {
  explicit Interrupted(int signal);
  int signal;
};

// During its lifetime, signals that ask the process to end are noted instead. One at a time. With an eventfd, `wake`,
// the process serves: each noted signal adds 1 to it, and SIGHUP asks for a reload.
class InterruptGuard {
public:
  explicit InterruptGuard(int wake = -1);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard &) = delete;
};

// Threads created during its lifetime block all signals except those that a thread's own faults raise.
class SignalsBlocked {
public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked &) = delete;

private:
  sigset_t before;
};

// `ulimit -t` sets the hard limit of processor time too unless it is told otherwise, and the system then sends SIGKILL
// where it would have sent SIGXCPU. If the two limits are the same, this lowers the soft one by ten seconds of so many
// threads, or by a quarter if that is less.
void leaveTimeToSave(int threads);

// The first signal that the latest guard has noted, or 0.
int interrupted();
// Throws Interrupted if a signal was noted.
void checkInterrupted();

// Whether SIGUSR1 was noted since the last call.
bool saveRequested();
// Whether SIGHUP was noted since the last call, by a guard that serves.
bool reloadRequested();

} // namespace xfc
