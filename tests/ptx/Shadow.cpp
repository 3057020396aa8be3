#include "Shadow.h"
#include <algorithm>

namespace xfc::ptx {

static std::string text(Dimensions d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

SharedShadow::SharedShadow(Cluster &cluster, uint32_t granule)
    : cluster(cluster), granule(granule), shift(uint32_t(std::countr_zero(granule))),
      granules(uint32_t((cluster.launch.sharedBytes + granule - 1) >> shift)),
      warps(uint32_t(cluster.blocks.size() * cluster.blocks[0].warps.size())), blocks(cluster.blocks.size()),
      clocks(warps), ordered(warps), fences(warps),
      users(cluster.launch.cooperative ? uint32_t(cluster.blocks[0].warps.size()) : warps) {
  reset();
}

void SharedShadow::reset() {
  barriers.clear();
  releases.clear();
  for (Memory &m : blocks) {
    m.writes.assign(granules, {});
    m.reads.assign(size_t(granules) * users, 0);
  }
  for (uint32_t w = 0; w < warps; ++w) {
    clocks[w].assign(2 * size_t(warps), 0);
    clocks[w][w] = ordered[w] = 1;
    fences[w].clear();
  }
}

std::string SharedShadow::thread(uint32_t warp, int lane) const {
  auto perBlock = uint32_t(cluster.blocks[0].warps.size());
  uint32_t number = warp % perBlock * 32;
  std::string of = warps > perBlock ? " of block " + text(cluster.blocks[warp / perBlock].index) : "";
  if (lane == EveryLane)
    return "threads " + text(unflatten(number, cluster.launch.block)) + " to " +
           text(unflatten(number + 31, cluster.launch.block)) + of;
  return "thread " + text(unflatten(number + uint32_t(lane), cluster.launch.block)) + of;
}

void SharedShadow::race(Warp &w, int lane, uint32_t byte, const char *what, uint32_t warp, int otherLane,
                        uint32_t line) const {
  w.fault(lane == EveryLane ? std::countr_zero(w.active) : lane,
          "race on shared byte " + std::to_string(byte) + ", which " + thread(warp, otherLane) + " has " + what +
              (line ? " at PTX line " + std::to_string(line) : "") + ": nothing orders the two");
}

inline void SharedShadow::Reader::record(int lane, uint32_t g) const {
  const bool several = reads[g] >> 8 >= since && (reads[g] & 255) != uint32_t(lane);
  reads[g] = now << 8 | uint32_t(several ? EveryLane : lane);
}

// A write forgets the reads before it, so one of this epoch that is remembered was checked against the last write.
inline bool SharedShadow::Reader::read(int lane, uint32_t begin, uint32_t end) const {
  const uint32_t byLane = now << 8 | uint32_t(lane), byEvery = now << 8 | uint32_t(EveryLane);
  bool fine = true;
  for (uint32_t g = begin; g < end; ++g) {
    if (reads[g] == byLane || reads[g] == byEvery)
      continue;
    const Write &last = writes[g];
    if (last.state >= Written && (last.warp == self ? last.epoch < since : clock[last.warp] >= last.epoch))
      record(lane, g);
    else
      fine = false;
  }
  return fine;
}

SharedShadow::Reader SharedShadow::readerOf(const Warp &w, const Block &of) {
  const uint32_t self = id(w);
  Memory &memory = blocks[of.rank];
  return {memory.writes.data(), &memory.reads[size_t(self - firstUser(of)) * granules],
          clocks[self].data(),  self,
          clocks[self][self],   ordered[self]};
}

void SharedShadow::accessByLanes(Warp &w, const uint64_t *offsets, uint32_t bytes, Access access) {
  uint32_t lanes = w.active;
  if (access == Access::Read) {
    const Reader reader = readerOf(w, *w.block);
    forLanes(w.active, [&](int l) {
      const auto offset = uint32_t(offsets[l]);
      if (reader.read(l, offset >> shift, ((offset + bytes - 1) >> shift) + 1))
        lanes &= ~(1u << l);
    });
  }
  forLanes(lanes, [&](int l) { this->access(w, l, *w.block, uint32_t(offsets[l]), bytes, access); });
}

void SharedShadow::access(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes, Access access) {
  Memory &memory = blocks[of.rank];
  const uint32_t first = firstUser(of), begin = offset >> shift, end = ((offset + bytes - 1) >> shift) + 1;
  const Reader reader = readerOf(w, of);
  const bool bulk = access == Access::BulkRead || access == Access::BulkWrite;
  auto unfenced = [&](const Write &last) {
    return bulk && last.state >= Written && !last.bulk && !isFenced(last, w, lane, /*ofBarrier=*/false);
  };
  if ((access == Access::Read || access == Access::BulkRead) && reader.read(lane, begin, end) &&
      !(bulk && std::any_of(&memory.writes[begin], &memory.writes[begin] + (end - begin), unfenced)))
    return;
  for (uint32_t g = begin; g < end; ++g) {
    Write &last = memory.writes[g];
    uint32_t byte = g * granule;
    if (last.state == Never && (onlyReads(access) || access == Access::Atomic || access == Access::Barrier))
      w.fault(lane == EveryLane ? std::countr_zero(w.active) : lane,
              "a read of shared byte " + std::to_string(byte) + ", which nothing has written");
    if (last.state == Pending)
      w.fault(lane == EveryLane ? std::countr_zero(w.active) : lane,
              "shared byte " + std::to_string(byte) + " is accessed while a cp.async of " +
                  thread(last.warp, last.lane) + " at PTX line " + std::to_string(last.line) + " is not waited for");
    if (last.state != Never && !(access == Access::Atomic && last.state == Atomically)) {
      if (!isBefore({last.epoch, last.warp, last.lane}, w, lane))
        race(w, lane, byte, "written", last.warp, last.lane, last.line);
    }
    if (unfenced(last))
      w.fault(lane == EveryLane ? std::countr_zero(w.active) : lane,
              "shared byte " + std::to_string(byte) + ", which " + thread(last.warp, last.lane) +
                  " has written at PTX line " + std::to_string(last.line) + ", is " +
                  (access == Access::BulkRead ? "read" : "written") +
                  " through the async proxy, and no fence.proxy.async comes between");
    if (access == Access::Barrier)
      continue;
    if (onlyReads(access)) {
      reader.record(lane, g);
      continue;
    }
    for (uint32_t r = 0; r < users; ++r) {
      uint32_t &read = memory.reads[size_t(r) * granules + g];
      if (!read)
        continue;
      uint32_t epoch = read >> 8, warp = first + r;
      int by = int(read & 255);
      if (!isBefore({epoch, warp, by}, w, lane) && !(access == Access::Atomic && last.state == Atomically))
        race(w, lane, byte, "read", warp, by, 0);
      read = 0;
    }
    last = {reader.now, uint32_t(w.current->line), uint16_t(reader.self), uint8_t(lane),
            access == Access::Async || bulk ? Pending
            : access == Access::Atomic      ? Atomically
                                            : Written};
  }
}

void SharedShadow::copied(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes) {
  uint32_t self = id(w);
  for (uint32_t g = offset >> shift; g <= (offset + bytes - 1) >> shift; ++g) {
    Write &last = blocks[of.rank].writes[g];
    last = {clocks[self][self], last.line, uint16_t(self), uint8_t(lane), Written};
  }
}

void SharedShadow::arrived(const Block &of, uint32_t offset, uint32_t bytes) {
  for (uint32_t g = offset >> shift; g <= (offset + bytes - 1) >> shift; ++g) {
    Write &last = blocks[of.rank].writes[g];
    last.state = Written;
    last.bulk = true;
  }
}

// Each fence ends an epoch of its warp: everything that its lanes did up to then is fenced for accesses ordered after
// it.
void SharedShadow::fence(Warp &w, uint32_t lanes, bool barriersOnly) {
  const uint32_t self = id(w);
  Clock &clock = clocks[self];
  fences[self].push_back({clock[self], lanes, barriersOnly});
  for (uint32_t k = 0; k < warps && !barriersOnly; ++k)
    clock[warps + k] = std::max(clock[warps + k], k == self ? ordered[self] - 1 : clock[k]);
  ++clock[self];
}

// Whether a fence lies between the write and the current access of a lane of w, by the writing thread or by another
// one.
bool SharedShadow::isFenced(const Write &write, const Warp &w, int lane, bool ofBarrier) const {
  const Clock &clock = clockOf(w);
  if (clock[warps + write.warp] >= write.epoch)
    return true;
  const std::vector<Fence> &own = fences[write.warp];
  for (auto fence = own.rbegin(); fence != own.rend() && fence->epoch >= write.epoch; ++fence) {
    const bool known = write.warp != id(w) ? clock[write.warp] > fence->epoch
                                           : write.lane == lane || fence->epoch < ordered[write.warp];
    const bool its = write.lane == EveryLane ? fence->lanes == ~0u : fence->lanes >> write.lane & 1;
    if (known && its && (ofBarrier || !fence->barriersOnly))
      return true;
  }
  return false;
}

void SharedShadow::barrierOfCopy(Warp &w, int lane, const Block &of, uint32_t offset) {
  const Write &last = blocks[of.rank].writes[offset >> shift];
  if (last.state == Written && !last.bulk && !isFenced(last, w, lane, /*ofBarrier=*/true))
    w.fault(lane, "a copy is to arrive at the mbarrier that " + thread(last.warp, last.lane) +
                      " has made at PTX line " + std::to_string(last.line) +
                      ", and no fence.mbarrier_init or fence.proxy.async comes between");
}

void SharedShadow::release(Warp &w, Clock &into) {
  Clock &own = clocks[id(w)];
  into.resize(own.size());
  for (size_t k = 0; k < own.size(); ++k)
    into[k] = std::max(into[k], own[k]);
  order(w);
}

void SharedShadow::acquire(Warp &w, const Clock &from) {
  Clock &own = clocks[id(w)];
  for (size_t k = 0; k < std::min(own.size(), from.size()); ++k)
    own[k] = std::max(own[k], from[k]);
}

void SharedShadow::order(Warp &w) { ordered[id(w)] = ++clocks[id(w)][id(w)]; }

// ---- global memory

void GlobalShadow::forget(Last &last) {
  if (last.severalWarps)
    unused.push_back(last.read);
  last.severalWarps = false;
  last.reader = last.read = 0;
}

// Records a read by w's cluster, so far the only one that has read the bytes.
void GlobalShadow::readBy(Last &last, const Warp &w, int lane) {
  const SharedShadow &order = *w.block->cluster->shadow;
  const Clock &clock = order.clockOf(w);
  uint32_t self = order.id(w), now = clock[self], mine = now << 8 | uint32_t(lane), since = order.orderedOf(w);
  auto merged = [&](uint32_t before) {
    return before >> 8 >= since && (before & 255) != uint32_t(lane) ? now << 8 | uint32_t(EveryLane) : mine;
  };
  if (last.severalWarps) {
    uint32_t &read = reads[last.read][self];
    read = merged(read);
  } else if (!last.read || last.readWarp == self || clock[last.readWarp] >= last.read >> 8) {
    // Anything ordered after this read is also ordered after the previous one.
    last.read = last.readWarp == self ? merged(last.read) : mine;
    last.readWarp = uint16_t(self);
  } else {
    if (unused.empty()) {
      unused.push_back(uint32_t(reads.size()));
      reads.emplace_back();
    }
    Clock &several = reads[unused.back()];
    several.assign(clock.size(), 0);
    several[last.readWarp] = last.read;
    several[self] = mine;
    last.read = unused.back();
    last.severalWarps = true;
    unused.pop_back();
  }
}

std::optional<Moment> GlobalShadow::unorderedRead(const Last &last, const Warp &w, int lane) const {
  const SharedShadow &order = *w.block->cluster->shadow;
  auto check = [&](uint32_t read, uint32_t warp) -> std::optional<Moment> {
    Moment m{read >> 8, warp, int(read & 255)};
    return !read || order.isBefore(m, w, lane) ? std::nullopt : std::optional(m);
  };
  if (!last.severalWarps)
    return check(last.read, last.readWarp);
  const Clock &several = reads[last.read];
  for (uint32_t warp = 0; warp < several.size(); ++warp)
    if (auto m = check(several[warp], warp))
      return m;
  return std::nullopt;
}

void GlobalShadow::access(Warp &w, int lane, const Allocation &a, uint64_t offset, uint32_t bytes, Access access) {
  if (a.constant)
    return;
  if (latest != &a) {
    latest = &a;
    pages = &allocations[&a];
    pages->resize((a.bytes + pageBytes - 1) / pageBytes);
  }
  const Cluster &cluster = *w.block->cluster;
  const SharedShadow &order = *cluster.shadow;
  const Dimensions grid = cluster.launch.grid;
  uint32_t self = cluster.first.x + grid.x * (cluster.first.y + grid.y * cluster.first.z) + 1;
  const uint32_t warp = order.id(w), now = order.clockOf(w)[warp];
  for (uint64_t at = offset >> shift << shift; at < offset + bytes; at += granule) {
    Page &page = (*pages)[at / pageBytes];
    if (page.empty())
      page.resize(pageBytes >> shift);
    Last &last = page[at % pageBytes >> shift];
    if (onlyReads(access) && last.reader == self && (last.nonCoherent || access != Access::NonCoherent)) {
      // As in shared memory: one of this epoch that is remembered was checked against the last write.
      const uint32_t before = last.severalWarps ? reads[last.read][warp] : last.readWarp == warp ? last.read : 0;
      if (before == (now << 8 | uint32_t(lane)) || before == (now << 8 | uint32_t(EveryLane)))
        continue;
    }
    auto race = [&](const char *what, const std::string &by) {
      w.fault(lane, "race on global memory: byte " + std::to_string(at) + " of an allocation of " +
                        std::to_string(a.bytes) + " bytes is " + (onlyReads(access) ? "read" : "written") +
                        " here and was " + what + " by " + by);
    };
    auto blocks = [&](uint32_t other) {
      return (other == many ? "other blocks" : "block " + text(unflatten(other - 1, grid))) + " of the same launch";
    };
    bool atomics = access == Access::Atomic && last.atomically && last.writer == self;
    if (last.writer && last.writer != self) {
      if (betweenClusters)
        race("written", blocks(last.writer));
    } else if (last.writer && !atomics) {
      Moment write{last.writeEpoch, last.writeWarp, last.writeLane};
      if (!order.isBefore(write, w, lane))
        race("written", order.thread(write.warp, write.lane) + " at PTX line " + std::to_string(last.writeLine) +
                            ": nothing orders the two");
    }
    if (access == Access::NonCoherent ? last.writer : !onlyReads(access) && last.nonCoherent)
      w.fault(lane, "byte " + std::to_string(at) + " of an allocation of " + std::to_string(a.bytes) +
                        " bytes is written and read by ld.global.nc in one launch");
    if (onlyReads(access)) {
      last.nonCoherent |= access == Access::NonCoherent;
      bool others = last.reader && last.reader != self;
      if (others)
        forget(last);
      last.reader = others && betweenClusters ? many : self;
      if (last.reader == self)
        readBy(last, w, lane);
      continue;
    }
    if (last.reader && last.reader != self) {
      if (betweenClusters)
        race("read", blocks(last.reader));
    } else if (last.reader) {
      if (auto read = unorderedRead(last, w, lane))
        race("read", order.thread(read->warp, read->lane) + ": nothing orders the two");
    }
    forget(last);
    last.writer = self;
    last.writeEpoch = now;
    last.writeWarp = uint16_t(warp);
    last.writeLane = uint8_t(lane);
    last.writeLine = uint32_t(w.current->line);
    last.atomically = access == Access::Atomic;
  }
}

std::vector<Interpreter::Accessed> GlobalShadow::accessed() const {
  std::vector<Interpreter::Accessed> ranges;
  for (const auto &[allocation, pages] : allocations)
    for (size_t p = 0; p < pages.size(); ++p)
      for (size_t g = 0; g < pages[p].size(); ++g) {
        const Last &last = pages[p][g];
        if (!last.writer && !last.reader)
          continue;
        uint64_t address = allocation->address + p * pageBytes + g * granule;
        bool written = last.writer;
        if (!ranges.empty() && ranges.back().written == written &&
            ranges.back().address + ranges.back().bytes == address)
          ranges.back().bytes += granule;
        else
          ranges.push_back({address, granule, written});
      }
  return ranges;
}

} // namespace xfc::ptx
