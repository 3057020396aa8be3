// A signal that asks a process to save what it has, and to go on.
#pragma once

#include <csignal>

namespace xfc {

// While it lives, SIGUSR1 is noted in place of ending the process.
class SaveRequestGuard {
public:
  SaveRequestGuard();
  ~SaveRequestGuard();
  SaveRequestGuard(const SaveRequestGuard &) = delete;

private:
  struct sigaction before;
};

// Whether one was noted since the last time this was asked.
bool saveRequested();

} // namespace xfc
