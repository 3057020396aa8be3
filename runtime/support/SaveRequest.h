// Turns SIGUSR1, which asks a process to save its state and continue, into a flag.
#pragma once

#include <csignal>

namespace xfc {

// During its lifetime SIGUSR1 is recorded instead of ending the process.
class SaveRequestGuard {
public:
  SaveRequestGuard();
  ~SaveRequestGuard();
  SaveRequestGuard(const SaveRequestGuard &) = delete;

private:
  struct sigaction before;
};

// Whether a signal was recorded since the last call.
bool saveRequested();

} // namespace xfc
