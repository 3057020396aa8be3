// Finds races, and reads of shared bytes that nothing has written, while a launch runs.
//
// Shared memory: each warp has a vector clock (Lamport, Fidge). A barrier joins the clocks of those that arrive into
// the clocks of those that wait; mbarriers do the same. An access must come after the last write of the bytes, and a
// write after the last reads of every warp. Lanes of one warp are ordered by barriers and bar.warp.sync only: a shuffle
// orders no memory, and lanes do not run in step. The bytes of a cp.async are being written from its issue to its wait.
// Bulk copies and wgmma access shared memory through the async proxy. Between a write through the generic one (any
// other instruction's) and their access must come a fence.proxy.async, of the thread that wrote or of one that the
// write comes before; a copy's arrival at an mbarrier needs one after its init, or a fence.mbarrier_init. The other way
// round nothing is needed: what was waited for is seen by both, and a read that the generic proxy has done is over.
// Global memory: within a cluster the same, by the same clocks; what a copy into shared memory reads is read when it is
// issued. No byte that a cluster writes may be read or written by another cluster of the launch (in a kernel with
// atomics on global memory they may order themselves by these, and it is not asked), and none that anyone writes may be
// read by ld.global.nc.
#pragma once

#include "Machine.h"

namespace xfc::ptx {

// By warp of the cluster: up to which of its epochs what it did comes before; then, by warp again, up to which that was
// fenced for the async proxy by another one.
using Clock = std::vector<uint32_t>;

// What a warp did at its time `epoch`. lane: EveryLane where several lanes did it.
struct Moment {
  uint32_t epoch, warp;
  int lane;
};

class SharedShadow {
public:
  // granule: bytes that are watched together, the size of the kernel's narrowest access.
  SharedShadow(Cluster &cluster, uint32_t granule);
  void reset();

  void access(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes, Access access);
  void copied(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes); // a cp.async was waited for
  void arrived(const Block &of, uint32_t offset, uint32_t bytes);                   // a bulk copy, at its mbarrier
  // fence.proxy.async of some lanes; or one that counts for an mbarrier's init only.
  void fence(Warp &w, uint32_t lanes, bool barriersOnly);
  void barrierOfCopy(Warp &w, int lane, const Block &of, uint32_t offset);

  void release(Warp &w, Clock &into); // what w did until now comes before who acquires `into`
  void acquire(Warp &w, const Clock &from);
  void order(Warp &w); // the lanes of w: bar.warp.sync
  uint32_t id(const Warp &w) const {
    return w.block->rank * uint32_t(w.block->warps.size()) + w.number;
  } // in the cluster
  const Clock &clockOf(const Warp &w) const { return clocks[id(w)]; }
  // Whether it comes before what a lane of w does now.
  bool isBefore(const Moment &m, const Warp &w, int lane) const {
    const Clock &clock = clockOf(w);
    return m.warp != id(w) ? clock[m.warp] >= m.epoch
                           : (m.lane == lane && lane != EveryLane) || m.epoch < ordered[m.warp];
  }
  // The epoch of w since its lanes were ordered.
  uint32_t orderedOf(const Warp &w) const { return ordered[id(w)]; }
  std::string thread(uint32_t warp, int lane) const; // for messages

  struct Barrier { // an mbarrier
    Clock arriving, completed;
  };
  Barrier &barrier(const Block &of, uint32_t offset) { return barriers[{of.rank, offset}]; }

private:
  enum State : uint8_t { Never, Pending, Written, Atomically };
  struct Write {
    uint32_t epoch = 0, line = 0;
    uint16_t warp = 0;
    uint8_t lane = 0;
    State state = Never;
    bool bulk = false; // by the async proxy
  };
  struct Memory { // of one block
    std::vector<Write> writes;
    std::vector<uint32_t> reads; // by granule and warp: epoch << 8 | lane, of the latest; 0: none since the last write
  };
  Cluster &cluster;
  uint32_t granule, warps;
  std::vector<Memory> blocks;
  std::vector<Clock> clocks;
  std::vector<uint32_t> ordered; // by warp: its epoch when its lanes were ordered
  struct Fence {
    uint32_t epoch, lanes;
    bool barriersOnly;
  };
  std::vector<std::vector<Fence>> fences; // by warp, each with an epoch of its own
  bool isFenced(const Write &write, const Warp &w, int lane, bool ofBarrier) const;
  std::map<std::pair<uint32_t, uint32_t>, Barrier> barriers; // by block and offset

  [[noreturn]] void race(Warp &w, int lane, uint32_t byte, const char *what, uint32_t warp, int otherLane,
                         uint32_t line) const;
};

class GlobalShadow {
public:
  // betweenClusters: whether clusters are held against each other.
  GlobalShadow(uint32_t granule, bool betweenClusters) : granule(granule), betweenClusters(betweenClusters) {}
  void access(Warp &w, int lane, const Allocation &a, uint64_t offset, uint32_t bytes, Access access);
  std::vector<Interpreter::Accessed> accessed() const;

private:
  static constexpr uint32_t pageBytes = 4096, many = ~0u;
  // The last accesses. writer and reader are clusters, plus 1; 0: none, or all of them come before the last write.
  struct Last {
    uint32_t writer = 0, writeEpoch = 0, writeLine = 0;
    uint32_t reader = 0;
    uint32_t read = 0; // epoch << 8 | lane; with severalWarps the index of that of each warp in `reads`
    uint16_t writeWarp = 0, readWarp = 0;
    uint8_t writeLane = 0;
    bool atomically = false;   // written by an atomic
    bool nonCoherent = false;  // read by ld.global.nc
    bool severalWarps = false; // of one cluster read it, in no order
  };
  using Page = std::vector<Last>;
  uint32_t granule;
  bool betweenClusters;
  std::map<const Allocation *, std::vector<Page>> allocations;
  const Allocation *latest = nullptr;
  std::vector<Page> *pages = nullptr;
  std::vector<Clock> reads;     // by warp: epoch << 8 | lane; 0: none
  std::vector<uint32_t> unused; // of them

  void readBy(Last &last, const Warp &w, int lane);
  std::optional<Moment> unorderedRead(const Last &last, const Warp &w, int lane) const;
  void forget(Last &last); // its readers
};

} // namespace xfc::ptx
