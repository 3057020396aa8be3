// Says which rank was lost.
#pragma once

#include "ranks/Ranks.h"
#include <sys/types.h>

namespace xfc {

// If a rank is killed or crashes, the launcher ends all others, but MPICH's may name the wrong one, and none of them
// has the time to say more. So a process beside them, the helper, watches those of its machine. Each rank is connected
// with it. As soon as a connection is closed, or a rank exits because MPI has failed in it, the helper names those that
// are ending: the one that was lost, and where the machine is busy perhaps others, which MPI or the launcher has ended
// already. Where ranks cannot be connected (Linux before 5.9, a network of its own for each), nothing is watched.
class Watch {
public:
  // Starts the helper. To be called before MPI is begun, which may start threads, and open descriptors by which the
  // launcher notices that a rank has ended: the helper must have neither.
  Watch();
  ~Watch();
  Watch(const Watch &) = delete;
  // Begins to watch. All ranks call this.
  void begin(Ranks &ranks);
  // Ends the watch over this machine's ranks, from any of them, before it ends.
  void stop();

private:
  void leave();
  pid_t helper = -1;   // every rank starts one, but only that of a machine's lowest rank has anything to watch
  std::string address; // of the helper; empty if there is none
  int link = -1;       // the connection
};

} // namespace xfc
