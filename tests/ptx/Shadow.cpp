#include "Shadow.h"
#include <algorithm>

namespace xfc::ptx {

static std::string text(Dimensions d) { return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")"; }

SharedShadow::SharedShadow(Cluster &cluster, uint32_t granule)
    : cluster(cluster), granule(granule), warps(uint32_t(cluster.blocks.size() * cluster.blocks[0].warps.size())), blocks(cluster.blocks.size()),
      clocks(warps) {
  reset();
}

void SharedShadow::reset() {
  size_t granules = (cluster.launch.sharedBytes + granule - 1) / granule;
  for (Memory &m : blocks) {
    m.writes.assign(granules, {});
    m.reads.assign(granules * warps, 0);
  }
  for (uint32_t w = 0; w < warps; ++w) {
    clocks[w].assign(warps, 0);
    clocks[w][w] = 1;
  }
}

uint32_t SharedShadow::id(const Warp &w) const { return w.block->rank * uint32_t(w.block->warps.size()) + w.number; }

std::string SharedShadow::thread(uint32_t warp, int lane) const {
  auto perBlock = uint32_t(cluster.blocks[0].warps.size());
  uint32_t number = warp % perBlock * 32;
  std::string of = warps > perBlock ? " of block " + text(cluster.blocks[warp / perBlock].index) : "";
  if (lane == EveryLane)
    return "threads " + text(unflatten(number, cluster.launch.block)) + " to " + text(unflatten(number + 31, cluster.launch.block)) + of;
  return "thread " + text(unflatten(number + uint32_t(lane), cluster.launch.block)) + of;
}

void SharedShadow::race(Warp &w, int lane, uint32_t byte, const char *what, uint32_t warp, int otherLane, uint32_t line) const {
  w.fault(lane == EveryLane ? std::countr_zero(w.active) : lane,
          "race on shared byte " + std::to_string(byte) + ", which " + thread(warp, otherLane) + " has " + what +
              (line ? " at PTX line " + std::to_string(line) : "") + ": nothing orders the two");
}

void SharedShadow::access(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes, Access access) {
  Memory &memory = blocks[of.rank];
  uint32_t self = id(w);
  const Clock &clock = clocks[self];
  uint32_t now = clock[self];
  auto other = [&](int l) { return l != lane || l == EveryLane; };
  for (uint32_t g = offset / granule; g <= (offset + bytes - 1) / granule; ++g) {
    Write &last = memory.writes[g];
    uint32_t byte = g * granule;
    if (last.state == Never && (access == Access::Read || access == Access::Atomic))
      w.fault(lane == EveryLane ? std::countr_zero(w.active) : lane, "a read of shared byte " + std::to_string(byte) + ", which nothing has written");
    if (last.state == Pending)
      w.fault(lane == EveryLane ? std::countr_zero(w.active) : lane,
              "shared byte " + std::to_string(byte) + " is accessed while a cp.async of " + thread(last.warp, last.lane) + " at PTX line " +
                  std::to_string(last.line) + " is not waited for");
    if (last.state != Never && !(access == Access::Atomic && last.state == Atomically)) {
      bool ordered = last.warp == self ? !other(last.lane) || last.epoch < now : clock[last.warp] >= last.epoch;
      if (!ordered)
        race(w, lane, byte, "written", last.warp, last.lane, last.line);
    }
    uint32_t *reads = &memory.reads[size_t(g) * warps];
    if (access == Access::Read) {
      uint32_t &mine = reads[self];
      bool several = mine >> 8 == now && int(mine & 255) != lane;
      mine = now << 8 | uint32_t(several ? EveryLane : lane);
      continue;
    }
    for (uint32_t r = 0; r < warps; ++r) {
      if (!reads[r])
        continue;
      uint32_t epoch = reads[r] >> 8;
      int reader = int(reads[r] & 255);
      bool ordered = r == self ? !other(reader) || epoch < now : clock[r] >= epoch;
      if (!ordered && !(access == Access::Atomic && last.state == Atomically))
        race(w, lane, byte, "read", r, reader, 0);
      reads[r] = 0;
    }
    last = {now, uint32_t(w.current->line), uint16_t(self), uint8_t(lane),
            access == Access::Async ? Pending : access == Access::Atomic ? Atomically : Written};
  }
}

void SharedShadow::copied(Warp &w, int lane, const Block &of, uint32_t offset, uint32_t bytes) {
  uint32_t self = id(w);
  for (uint32_t g = offset / granule; g <= (offset + bytes - 1) / granule; ++g) {
    Write &last = blocks[of.rank].writes[g];
    last = {clocks[self][self], last.line, uint16_t(self), uint8_t(lane), Written};
  }
}

void SharedShadow::release(Warp &w, Clock &into) {
  into.resize(warps);
  Clock &own = clocks[id(w)];
  for (uint32_t k = 0; k < warps; ++k)
    into[k] = std::max(into[k], own[k]);
  order(w);
}

void SharedShadow::acquire(Warp &w, const Clock &from) {
  Clock &own = clocks[id(w)];
  for (uint32_t k = 0; k < std::min<size_t>(warps, from.size()); ++k)
    own[k] = std::max(own[k], from[k]);
}

void SharedShadow::order(Warp &w) { ++clocks[id(w)][id(w)]; }

void GlobalShadow::access(Warp &w, int lane, const Allocation &a, uint64_t offset, uint32_t bytes, Access access) {
  if (a.constant)
    return;
  if (latest != &a) {
    latest = &a;
    pages = &allocations[&a];
    pages->resize((a.bytes + pageBytes - 1) / pageBytes);
  }
  const Cluster &cluster = *w.block->cluster;
  const Dimensions grid = cluster.launch.grid;
  uint32_t self = cluster.first.x + grid.x * (cluster.first.y + grid.y * cluster.first.z) + 1;
  for (uint64_t at = offset / granule * granule; at < offset + bytes; at += granule) {
    Page &page = (*pages)[at / pageBytes];
    if (page.empty())
      page.resize(pageBytes / granule);
    Last &last = page[at % pageBytes / granule];
    auto race = [&](const char *what, uint32_t other) {
      w.fault(lane, "race on global memory: byte " + std::to_string(at) + " of an allocation of " + std::to_string(a.bytes) + " bytes is " +
                        (access == Access::Read ? "read" : "written") + " here and was " + what + (other == many ? " by other blocks" : " by block " + text(unflatten(other - 1, grid))) + " of the same launch");
    };
    if (last.writer && last.writer != self)
      race("written", last.writer);
    if (access == Access::Read) {
      last.reader = !last.reader || last.reader == self ? self : many;
      continue;
    }
    if (last.reader && last.reader != self)
      race("read", last.reader);
    last.writer = self;
  }
}

} // namespace xfc::ptx
