// The GPUs of several processes, which exchange memory by NCCL.
#pragma once

#include "device/Device.h"
#include "device/cuda/Events.h"
#include "device/cuda/Nccl.h"
#include <memory>
#include <vector>

namespace xfc::cuda {

class CudaPeers : public Peers {
public:
  // Joins the group as one of `size` processes, with the GPU of the current context, and waits until all have joined.
  // `computes` is the stream that exchanges are ordered with; they have one of their own. While this object lives,
  // `host` knows it, so that whoever waits for the GPU can check() it. Exchanges that start while there is a trace are
  // recorded on its ranks' track; the host then waits for them.
  CudaPeers(const Driver &driver, const Nccl &nccl, Stream computes, const GroupId &group, int rank, int size,
            HostWait &host, Trace *const &trace);
  // Leaves the group once all exchanges are complete. They are abandoned if they cannot be, or if there is an
  // exception.
  ~CudaPeers() override;
  void start(std::span<const Part> sends, std::span<const Part> receives) override;
  void wait() override;

  // Throws Error if an exchange cannot complete, as if another process has ended. The others of this process's are then
  // abandoned, so that no stream waits for them.
  void check();

private:
  Nccl::Result failure() const; // of an exchange under way; 0 if there is none
  void abandon();
  struct Timed {
    explicit Timed(const Driver &driver) : begin(driver, 0), end(driver, 0) {}
    OwnedEvent begin, end;
    double bytes = 0;
  };
  void timeNext();
  void addTimed();
  HostWait &host;
  Trace *const &trace;
  const Driver &driver;
  const Nccl &nccl;
  Communicator communicator = nullptr;
  Stream computes, exchanges = nullptr;
  Event given = nullptr, exchanged = nullptr; // the last work of each stream when the other began to wait for it
  std::vector<std::unique_ptr<Timed>> timed;  // exchanges that have been started but not waited for
  std::unique_ptr<OwnedEvent> anchor;         // that was reached when the trace's time was `anchored`
  int64_t anchored = 0;
};

} // namespace xfc::cuda
