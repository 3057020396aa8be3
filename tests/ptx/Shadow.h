// Finds races, and reads of shared bytes that nothing has written, while a launch runs.
//
// Shared memory: each warp has a vector clock (Lamport, Fidge). A barrier joins the clocks of those that arrive into the
// clocks of those that wait; mbarriers do the same. An access must come after the last write of the bytes, and a write
// after the last reads of every warp. Lanes of one warp are ordered by barriers and bar.warp.sync only: a shuffle orders no
// memory, and lanes do not run in step. The bytes of a cp.async are being written from its issue to its wait.
// Global memory: no byte that a cluster writes may be read or written by another cluster of the launch. Kernels with
// atomics on global memory are left out: blocks may order themselves by them.
#pragma once

#include "Machine.h"

namespace xfc::ptx {

using Clock = std::vector<uint32_t>; // by warp of the cluster

class SharedShadow {
public:
  // granule: bytes that are watched together, the size of the kernel's narrowest access.
  SharedShadow(Cluster &cluster, uint32_t granule);
  void reset();

  void access(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes, Access access);
  void copied(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes); // a cp.async was waited for

  void release(Warp &w, Clock &into); // what w did until now comes before who acquires `into`
  void acquire(Warp &w, const Clock &from);
  void order(Warp &w); // the lanes of w: bar.warp.sync

private:
  enum State : uint8_t { Never, Pending, Written, Atomically };
  struct Write {
    uint32_t epoch = 0, line = 0;
    uint16_t warp = 0;
    uint8_t lane = 0;
    State state = Never;
  };
  struct Memory { // of one block
    std::vector<Write> writes;
    std::vector<uint32_t> reads; // by granule and warp: epoch << 8 | lane, of the latest; 0: none since the last write
  };
  Cluster &cluster;
  uint32_t granule, warps;
  std::vector<Memory> blocks;
  std::vector<Clock> clocks;

  uint32_t id(const Warp &w) const;
  std::string thread(uint32_t warp, int lane) const;
  [[noreturn]] void race(Warp &w, int lane, uint32_t byte, const char *what, uint32_t warp, int otherLane, uint32_t line) const;
};

class GlobalShadow {
public:
  explicit GlobalShadow(uint32_t granule) : granule(granule) {}
  void access(Warp &w, int lane, const Allocation &a, uint64_t offset, uint32_t bytes, Access access);

private:
  static constexpr uint32_t pageBytes = 4096, many = ~0u;
  struct Last { // the clusters that accessed it, plus 1; 0: none
    uint32_t writer = 0, reader = 0;
  };
  using Page = std::vector<Last>;
  uint32_t granule;
  std::map<const Allocation *, std::vector<Page>> allocations;
  const Allocation *latest = nullptr;
  std::vector<Page> *pages = nullptr;
};

} // namespace xfc::ptx
