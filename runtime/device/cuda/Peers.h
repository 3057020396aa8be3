// The GPUs of several processes, which exchange memory by NCCL.
#pragma once

#include "device/Device.h"
#include "device/cuda/Nccl.h"

namespace xfc::cuda {

class CudaPeers : public Peers {
public:
  // Joins the group as one of `size` processes, with the GPU of the current context, and waits until all have joined.
  // `computes` is the stream that exchanges are ordered with; they have one of their own. While this object lives,
  // `known` points to it, so that whoever waits for the GPU can check() it.
  CudaPeers(const Driver &driver, const Nccl &nccl, Stream computes, const GroupId &group, int rank, int size,
            CudaPeers *&known);
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
  CudaPeers *&known;
  const Driver &driver;
  const Nccl &nccl;
  Communicator communicator = nullptr;
  Stream computes, exchanges = nullptr;
  Event given = nullptr, exchanged = nullptr; // the last work of each stream when the other began to wait for it
};

} // namespace xfc::cuda
