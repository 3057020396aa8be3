// Finds races, and reads of uninitialized shared memory, while a launch runs.
//
// Shared memory: each warp has a vector clock (Lamport, Fidge). A barrier joins the clocks of the arriving warps into
// those of the waiting ones; so do mbarriers. An access must be ordered after the last write of the bytes, and a write
// after the last reads of every warp. Lanes of one warp are ordered by barriers and bar.warp.sync only: a shuffle does
// not order memory, and lanes do not run in lockstep. The bytes of a cp.async are being written from its issue to its
// wait. Bulk copies and wgmma access shared memory through the async proxy. A write through the generic proxy (by any
// other instruction) and such an access need a fence.proxy.async in between, by the writing thread or by one that is
// ordered after the write; a copy's arrival at an mbarrier needs one after its initialization, or a
// fence.mbarrier_init. Nothing is needed in the other direction: after a wait both proxies see the result, and a read
// by the generic proxy is complete.
// Global memory: within a cluster, and in a whole cooperative launch, the same rules and clocks apply; the source of a
// copy into shared memory is read at its issue. A strong access (relaxed, acquire, release) to global memory races with
// no other, and those that release and acquire at one address order warps of all blocks like a barrier. No byte written
// by a cluster may be read or written by another cluster of the launch (not checked in a kernel with atomics on global
// memory, by which clusters may order themselves), and no byte written by any may be read by ld.global.nc.
#pragma once

#include "Machine.h"

namespace xfc::ptx {

// For each warp of the cluster, the last of its epochs that is ordered before; then, again for each warp, the last
// epoch whose writes another warp fenced for the async proxy.
using Clock = std::vector<uint32_t>;

// An access of a warp at its time `epoch`. lane: EveryLane if several lanes made it.
struct Moment {
  uint32_t epoch, warp;
  int lane;
};

class SharedShadow {
public:
  // granule: the number of bytes tracked together, the size of the kernel's narrowest access: a power of two.
  SharedShadow(Cluster &cluster, uint32_t granule);
  void reset();

  void access(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes, Access access);
  // An access of each active lane to its block's own memory.
  void accessByLanes(Warp &w, const uint64_t *offsets, uint32_t bytes, Access access);
  void copied(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes); // after a cp.async was waited for
  void arrived(const Block &of, uint32_t offset, uint32_t bytes); // after a bulk copy arrived at its mbarrier
  // A fence.proxy.async of some lanes, or a fence that applies to mbarrier initialization only.
  void fence(Warp &w, uint32_t lanes, bool barriersOnly);
  void barrierOfCopy(Warp &w, int lane, const Block &of, uint32_t offset);

  void release(Warp &w, Clock &into); // orders everything w did so far before whoever acquires `into`
  void acquire(Warp &w, const Clock &from);
  void order(Warp &w); // orders the lanes of w: bar.warp.sync
  uint32_t id(const Warp &w) const {
    return w.block->rank * uint32_t(w.block->warps.size()) + w.number;
  } // in the cluster
  const Clock &clockOf(const Warp &w) const { return clocks[id(w)]; }
  // Whether the access is ordered before the current one of a lane of w.
  bool isBefore(const Moment &m, const Warp &w, int lane) const {
    const Clock &clock = clockOf(w);
    return m.warp != id(w) ? clock[m.warp] >= m.epoch
                           : (m.lane == lane && lane != EveryLane) || m.epoch < ordered[m.warp];
  }
  // The epoch of w when its lanes were last ordered.
  uint32_t orderedOf(const Warp &w) const { return ordered[id(w)]; }
  std::string thread(uint32_t warp, int lane) const; // for messages

  struct Barrier { // an mbarrier
    Clock arriving, completed;
  };
  Barrier &barrier(const Block &of, uint32_t offset) { return barriers[{of.rank, offset}]; }
  // The clock that releases at an address of global memory pass on to whoever acquires there.
  Clock &released(uint64_t address) { return releases[address]; }

private:
  enum State : uint8_t { Never, Pending, Written, Atomically };
  struct Write {
    uint32_t epoch = 0, line = 0;
    uint16_t warp = 0;
    uint8_t lane = 0;
    State state = Never;
    bool bulk = false; // written by the async proxy
  };
  struct Memory { // shadow memory of one block
    std::vector<Write> writes;
    std::vector<uint32_t> reads; // latest read, by user and granule: epoch << 8 | lane; 0: none since the last write
  };
  struct Reader { // a warp that reads the shared memory of a block
    const Write *writes;
    uint32_t *reads; // the warp's, by granule
    const uint32_t *clock;
    uint32_t self, now, since; // its number and epoch, and the epoch when its lanes were last ordered
    void record(int lane, uint32_t granule) const;
    // Records reads of these granules that are certainly fine: they are written, by another warp before this one, or
    // before its lanes were ordered. Returns whether all are.
    bool read(int lane, uint32_t begin, uint32_t end) const;
  };
  Reader readerOf(const Warp &w, const Block &of);
  Cluster &cluster;
  uint32_t granule, shift; // granule == 1 << shift
  uint32_t granules;       // in the shared memory of a block
  uint32_t warps;
  std::vector<Memory> blocks;
  std::vector<Clock> clocks;
  std::vector<uint32_t> ordered; // by warp: its epoch when its lanes were last ordered
  struct Fence {
    uint32_t epoch, lanes;
    bool barriersOnly;
  };
  std::vector<std::vector<Fence>> fences; // by warp; each ends an epoch
  bool isFenced(const Write &write, const Warp &w, int lane, bool ofBarrier) const;
  std::map<std::pair<uint32_t, uint32_t>, Barrier> barriers; // by block and offset
  std::map<uint64_t, Clock> releases;
  // The warps that can access a block's shared memory: all of the cluster, or, of a cooperative launch, the block's
  // own.
  uint32_t users;
  uint32_t firstUser(const Block &of) const { return users == warps ? 0 : of.rank * users; }

  [[noreturn]] void race(Warp &w, int lane, uint32_t byte, const char *what, uint32_t warp, int otherLane,
                         uint32_t line) const;
};

class GlobalShadow {
public:
  // betweenClusters: whether to check accesses of different clusters against each other.
  GlobalShadow(uint32_t granule, bool betweenClusters)
      : granule(granule), shift(uint32_t(std::countr_zero(granule))), betweenClusters(betweenClusters) {}
  void access(Warp &w, int lane, const Allocation &a, uint64_t offset, uint32_t bytes, Access access);
  std::vector<Interpreter::Accessed> accessed() const;

private:
  static constexpr uint32_t pageBytes = 4096, many = ~0u;
  // The last accesses. writer and reader are cluster numbers plus 1; 0: none, or all of them are ordered before the
  // last write.
  struct Last {
    uint32_t writer = 0, writeEpoch = 0, writeLine = 0;
    uint32_t reader = 0;
    uint32_t read = 0; // epoch << 8 | lane; with severalWarps an index into `reads`
    uint16_t writeWarp = 0, readWarp = 0;
    uint8_t writeLane = 0;
    bool atomically = false;   // written by an atomic
    bool nonCoherent = false;  // read by ld.global.nc
    bool severalWarps = false; // several warps of one cluster read it, unordered
  };
  using Page = std::vector<Last>;
  uint32_t granule, shift; // as in SharedShadow
  bool betweenClusters;
  std::map<const Allocation *, std::vector<Page>> allocations;
  const Allocation *latest = nullptr;
  std::vector<Page> *pages = nullptr;
  std::vector<Clock> reads;     // by warp: epoch << 8 | lane; 0: none
  std::vector<uint32_t> unused; // free indices of `reads`

  void readBy(Last &last, const Warp &w, int lane);
  std::optional<Moment> unorderedRead(const Last &last, const Warp &w, int lane) const;
  void forget(Last &last); // forgets the readers
};

} // namespace xfc::ptx
