// Executes mbarrier, and the copies that signal one: cp.async.bulk and cp.async.bulk.tensor. Each copy is delayed as
// long as the ISA allows: copies into shared memory complete when a barrier is waited for, those out of it when their
// group is.
#include "Decoder.h"
#include "Shadow.h"
#include "TensorMap.h"
#include <algorithm>
#include <cstring>

namespace xfc::ptx {

void finishCopies(Warp &w, int under); // MemoryAccess.cpp

namespace {

// The 64 bits of an mbarrier. The byte count of pending copies has an offset of 2^20.
struct BarrierState {
  uint64_t pending : 20, expected : 20, bytes : 21, phase : 1, magic : 2;
};
static_assert(sizeof(BarrierState) == 8);
constexpr uint64_t noBytes = uint64_t(1) << 20, valid = 2;

struct BarrierPlace {
  Block *block;
  uint32_t offset;
  BarrierState load() const {
    BarrierState s;
    memcpy(&s, block->shared.get() + offset, 8);
    return s;
  }
  void store(BarrierState s) const { memcpy(block->shared.get() + offset, &s, 8); }
};

uint64_t sharedAddress(uint64_t address) {
  return (address & WindowMask) == SharedWindow ? address & ~WindowMask : address;
}

BarrierPlace barrierAt(Warp &w, int lane, uint64_t address) {
  address = sharedAddress(address);
  resolve(w, lane, Space::Shared, address, 8, 8, Access::Barrier);
  auto [block, offset] = sharedPlace(w, lane, address, 8);
  BarrierPlace place{block, offset};
  if (place.load().magic != valid)
    w.fault(lane, "no mbarrier is at shared offset " + std::to_string(offset));
  return place;
}

void complete(const BarrierPlace &place, BarrierState s) {
  if (s.pending == 0 && s.bytes == noBytes) {
    s.phase ^= 1;
    s.pending = s.expected;
    if (SharedShadow *shadow = place.block->cluster->shadow.get()) {
      auto &clocks = shadow->barrier(*place.block, place.offset);
      clocks.completed = std::exchange(clocks.arriving, {});
    }
  }
  place.store(s);
}

void arriveAt(Warp &w, int lane, const BarrierPlace &place, uint32_t count, bool releases = true) {
  BarrierState s = place.load();
  if (count > s.pending)
    w.fault(lane, "more arrivals at an mbarrier than its count of " + std::to_string(s.expected));
  s.pending -= count;
  SharedShadow *shadow = w.block->cluster->shadow.get();
  if (shadow && releases)
    shadow->release(w, shadow->barrier(*place.block, place.offset).arriving);
  complete(place, s);
}

void expectBytes(Warp &w, int lane, const BarrierPlace &place, uint32_t bytes) {
  BarrierState s = place.load();
  if (uint64_t(s.bytes) + bytes > 2 * noBytes - 1)
    w.fault(lane, "an mbarrier that expects 2^20 bytes or more");
  s.bytes += bytes;
  place.store(s);
}

enum Operation { Init, Inval, Arrive, ArriveExpect, Expect, CompleteTx, Wait };

// selector: Operation; selector2: parity for Wait, or that noComplete is refused. op: result, second operand (None if
// absent).
void barrierLanes(Warp &w, const Instruction &i) {
  uint64_t address[32];
  addresses(w, i.at[0], address);
  uint64_t states[32] = {};
  uint32_t reached = 0;
  if (i.selector == Wait)
    w.block->cluster->deliver();
  forLanes(w.active, [&](int l) {
    uint32_t value = i.op[1] == None
                         ? 1
                         : *reinterpret_cast<uint32_t *>(w.registers + i.op[1] + size_t(l) * (i.width ? i.width : 4));
    if (i.selector == Init || i.selector == Inval) {
      uint64_t at = sharedAddress(address[l]);
      resolve(w, l, Space::Shared, at, 8, 8, Access::Write);
      auto [block, offset] = sharedPlace(w, l, at, 8);
      if (i.selector == Init && (value == 0 || value >= noBytes))
        w.fault(l, "an mbarrier with a count of " + std::to_string(value));
      BarrierPlace{block, offset}.store(i.selector == Init ? BarrierState{value, value, noBytes, 0, valid}
                                                           : BarrierState{});
      return;
    }
    BarrierPlace place = barrierAt(w, l, address[l]);
    BarrierState s = place.load();
    switch (i.selector) {
    case Arrive:
      states[l] = s.phase;
      arriveAt(w, l, place, value);
      break;
    case ArriveExpect:
      states[l] = s.phase;
      expectBytes(w, l, place, value);
      arriveAt(w, l, place, 1);
      break;
    case Expect:
      expectBytes(w, l, place, value);
      break;
    case CompleteTx:
      s.bytes -= value;
      complete(place, s);
      break;
    case Wait:
      if (s.phase != (value & 1)) {
        reached |= 1u << l;
        if (SharedShadow *shadow = w.block->cluster->shadow.get())
          shadow->acquire(w, shadow->barrier(*place.block, place.offset).completed);
      }
      break;
    }
  });
  if (i.selector == Wait) {
    w.putPredicate(i.op[0], reached);
    w.yielded = reached != w.active;
  } else if (i.op[0] != None) {
    w.put(i.op[0], states);
  }
}

void mbarrier(Decoder &d) {
  d.ignore({"release", "acquire", "relaxed", "cta", "cluster"});
  bool remote = d.take("shared::cluster"), shared = remote || d.take("shared") || d.take("shared::cta");
  Space space = shared ? Space::Shared : Space::Generic;
  d.i.op = {None, None};
  size_t n = 0;
  auto operandCount = [&](size_t least, size_t most) { d.expect(least, most); };
  if (d.take("init")) {
    d.i.selector = Init;
    operandCount(2, 2);
  } else if (d.take("inval")) {
    d.i.selector = Inval;
    operandCount(1, 1);
  } else if (d.take("arrive")) {
    bool expects = d.take("expect_tx");
    d.i.selector = expects ? ArriveExpect : Arrive;
    // The state is a separate operand, except for barriers of other blocks.
    bool hasState = d.operands() && d.s.operands[0].kind != Operand::Kind::Address;
    operandCount((expects ? 2 : 1) + hasState, 2 + hasState);
    if (hasState)
      d.i.op[0] = d.destination(n++, Type::B64);
  } else if (d.take("expect_tx")) {
    d.i.selector = Expect;
    operandCount(2, 2);
  } else if (d.take("complete_tx")) {
    d.i.selector = CompleteTx;
    operandCount(2, 2);
  } else {
    d.choose({"try_wait", "test_wait"});
    bool parity = d.take("parity");
    d.i.selector = Wait;
    operandCount(3, 4);
    d.i.op[0] = d.destination(n++, Type::Pred);
    if (d.operands() == 4) // a time limit for suspension
      d.source(3, Type::U32);
    d.i.width = parity ? 4 : 8;
    d.i.op[1] = d.source(2, parity ? Type::U32 : Type::B64);
  }
  if (d.type() != Type::B64)
    d.fail("is for b64");
  d.i.at[0] = d.address(d.s.operands.at(n++), space);
  if (d.i.selector != Wait && n < d.operands())
    d.i.op[1] = d.source(n, Type::U32);
  if (d.i.selector == Wait)
    d.set(barrierLanes, Flow::Wait);
  else
    d.set(barrierLanes);
}

// ---- bulk copies

// Queues `write` for when the bytes arrive, and then counts them at the barrier.
void arriveLater(Warp &w, int lane, const BarrierPlace &place, uint32_t bytes, std::function<void()> write) {
  Cluster &cluster = *w.block->cluster;
  Clock clock;
  if (cluster.shadow) {
    clock = cluster.shadow->clockOf(w);
    cluster.shadow->order(w);
  }
  cluster.bulk.push_back([&cluster, &w, lane, instruction = w.current, place, bytes, write, clock] {
    write();
    if (cluster.shadow) {
      Clock &arriving = cluster.shadow->barrier(*place.block, place.offset).arriving;
      arriving.resize(clock.size());
      for (size_t k = 0; k < clock.size(); ++k)
        arriving[k] = std::max(arriving[k], clock[k]);
    }
    BarrierState s = place.load();
    if (s.magic != valid || s.bytes < bytes + 1) {
      w.current = instruction;
      w.fault(lane, "bytes arrive at an mbarrier that is gone or counts too few");
    }
    s.bytes -= bytes;
    complete(place, s);
  });
}

// The target blocks of a copy: its own, or those in the mask of .multicast::cluster.
std::vector<Block *> targets(Warp &w, int lane, const Instruction &i, Block *otherwise) {
  if (i.op[1] == None)
    return {otherwise};
  if (w.block->cluster->launch.cooperative)
    w.fault(lane, "multicast in a cooperative launch is not known");
  uint32_t mask = w.at<uint16_t>(i.op[1])[lane];
  std::vector<Block *> list;
  for (uint32_t r = 0; r < 16; ++r)
    if (mask >> r & 1) {
      if (r >= w.block->cluster->blocks.size())
        w.fault(lane, "multicast to block " + std::to_string(r) + " of a cluster of " +
                          std::to_string(w.block->cluster->blocks.size()));
      list.push_back(&w.block->cluster->blocks[r]);
    }
  return list;
}

void mustBeAligned(Warp &w, int lane, const char *what, uint64_t value, uint64_t align) {
  if (value % align)
    w.fault(lane, std::string("misaligned ") + what + ": " + std::to_string(value & 0xfffffffff) +
                      " is no multiple of " + std::to_string(align));
}

// Marks shared bytes as being written; arrival later marks them as written.
void watch(Warp &w, int lane, const Block &block, uint32_t offset, uint32_t bytes) {
  if (SharedShadow *shadow = w.block->cluster->shadow.get())
    shadow->access(w, lane, block, offset, bytes, Access::BulkWrite);
}
// Checks the mbarrier that a bulk copy signals: its initialization needs a fence for the async proxy.
void mustBeFenced(Warp &w, int lane, const BarrierPlace &place) {
  if (SharedShadow *shadow = w.block->cluster->shadow.get())
    shadow->barrierOfCopy(w, lane, *place.block, place.offset);
}
std::function<void()> writing(Warp &w, Block *block, uint32_t offset, std::vector<uint8_t> data) {
  Cluster *cluster = w.block->cluster;
  return [cluster, block, offset, data = std::move(data)] {
    memcpy(block->shared.get() + offset, data.data(), data.size());
    if (cluster->shadow)
      cluster->shadow->arrived(*block, offset, uint32_t(data.size()));
  };
}

// at: destination, source, mbarrier. op: size, mask of blocks or None, coordinates.
struct BulkOperands {
  uint64_t to[32], from[32], barrier[32];
};
void bulkLoad(Warp &w, const Instruction &i) {
  BulkOperands o;
  addresses(w, i.at[0], o.to);
  addresses(w, i.at[1], o.from);
  addresses(w, i.at[2], o.barrier);
  forLanes(w.active, [&](int l) {
    uint32_t bytes = w.at<uint32_t>(i.op[0])[l];
    mustBeAligned(w, l, "size", bytes, 16);
    mustBeAligned(w, l, "target", o.to[l], 16);
    mustBeAligned(w, l, "source", o.from[l], 16);
    auto [block, offset] = sharedPlace(w, l, sharedAddress(o.to[l]), bytes);
    std::vector<uint8_t> data(bytes);
    memcpy(data.data(),
           resolve(w, l, i.at[1].space, i.at[1].space == Space::Shared ? sharedAddress(o.from[l]) : o.from[l], bytes,
                   16, Access::BulkRead),
           bytes);
    BarrierPlace barrier = barrierAt(w, l, o.barrier[l]);
    for (Block *target : targets(w, l, i, block)) {
      watch(w, l, *target, offset, bytes);
      BarrierPlace at{i.op[1] == None ? barrier.block : target, barrier.offset};
      mustBeFenced(w, l, at);
      arriveLater(w, l, at, bytes, writing(w, target, offset, data));
    }
    w.block->cluster->counters.globalRead += bytes;
    w.block->cluster->counters.sharedWritten += bytes;
  });
}

// Copies out of shared memory read it only when their group is waited for, so that overwriting it too early is
// detected.
void later(Warp &w, int lane, std::function<void()> run) {
  w.stores.push_back({lane, w.storeGroup[size_t(lane)], [&w, lane, instruction = w.current, run] {
                        const Instruction *current = std::exchange(w.current, instruction);
                        uint32_t active = std::exchange(w.active, 1u << lane);
                        run();
                        w.current = current;
                        w.active = active;
                      }});
}

void bulkStore(Warp &w, const Instruction &i) {
  BulkOperands o;
  addresses(w, i.at[0], o.to);
  addresses(w, i.at[1], o.from);
  forLanes(w.active, [&](int l) {
    uint32_t bytes = w.at<uint32_t>(i.op[0])[l];
    mustBeAligned(w, l, "size", bytes, 16);
    uint64_t from = sharedAddress(o.from[l]), to = o.to[l];
    resolve(w, l, Space::Shared, from, bytes, 16, Access::BulkRead);
    resolve(w, l, Space::Global, to, bytes, 16, Access::Write);
    later(w, l, [&w, l, from, to, bytes] {
      const uint8_t *source = resolve(w, l, Space::Shared, from, bytes, 16, Access::BulkRead);
      memcpy(resolve(w, l, Space::Global, to, bytes, 16, Access::Write), source, bytes);
    });
    w.block->cluster->counters.globalWritten += bytes;
  });
}

// ---- tensors

struct Tile {
  TensorMap map;
  int64_t corner[5] = {};
  uint32_t bytes = 0;
};

// The map has a generic address.
Tile tileOf(Warp &w, int lane, const Instruction &i, const Place &map) {
  Tile t;
  uint64_t address[32];
  addresses(w, map, address);
  memcpy(&t.map, resolve(w, lane, Space::Generic, address[lane], 128, 64, Access::Read), 128);
  if (t.map.magic != TensorMap().magic)
    w.fault(lane, "no tensor map is at this address");
  if (t.map.rank != i.count)
    w.fault(lane, "a tensor map of " + std::to_string(t.map.rank) + " dimensions");
  t.bytes = t.map.elementBytes;
  for (uint32_t k = 0; k < t.map.rank; ++k) {
    t.corner[k] = w.at<int32_t>(i.op[2 + k])[lane];
    t.bytes *= t.map.box[k];
  }
  return t;
}

// Calls f(offset in the box, address or 0 where out of bounds) for each element.
template <class F> void forElements(const Tile &t, F f) {
  uint32_t inner = t.map.box[0], rows = 1;
  for (uint32_t k = 1; k < t.map.rank; ++k)
    rows *= t.map.box[k];
  for (uint32_t row = 0; row < rows; ++row) {
    uint64_t address = t.map.address;
    bool in = true;
    uint32_t rest = row;
    for (uint32_t k = 1; k < t.map.rank; ++k) {
      int64_t c = t.corner[k] + rest % t.map.box[k];
      rest /= t.map.box[k];
      in &= c >= 0 && uint64_t(c) < t.map.sizes[k];
      address += uint64_t(c) * t.map.strides[k - 1];
    }
    for (uint32_t e = 0; e < inner; ++e) {
      int64_t c = t.corner[0] + e;
      bool here = in && c >= 0 && uint64_t(c) < t.map.sizes[0];
      f((row * inner + e) * t.map.elementBytes, here ? address + uint64_t(c) * t.map.elementBytes : 0);
    }
  }
}

void tensorLoad(Warp &w, const Instruction &i) {
  BulkOperands o;
  addresses(w, i.at[0], o.to);
  addresses(w, i.at[2], o.barrier);
  forLanes(w.active, [&](int l) {
    Tile t = tileOf(w, l, i, i.at[1]);
    uint64_t to = sharedAddress(o.to[l]);
    mustBeAligned(w, l, "target", to, 128);
    auto [block, offset] = sharedPlace(w, l, to, t.bytes);
    std::vector<uint8_t> data(t.bytes);
    uint64_t counted = 0;
    forElements(t, [&](uint32_t at, uint64_t address) {
      uint8_t *target = &data[swizzled(offset + at, t.map.swizzle) - offset];
      if (address) {
        memcpy(target, resolve(w, l, Space::Global, address, t.map.elementBytes, 1, Access::Read), t.map.elementBytes);
        counted += t.map.elementBytes;
      } else if (t.map.fillNaN) {
        memset(target, 0xff, t.map.elementBytes);
      } else {
        memset(target, 0, t.map.elementBytes);
      }
    });
    BarrierPlace barrier = barrierAt(w, l, o.barrier[l]);
    for (Block *target : targets(w, l, i, block)) {
      watch(w, l, *target, offset, t.bytes);
      BarrierPlace at{i.op[1] == None ? barrier.block : target, barrier.offset};
      mustBeFenced(w, l, at);
      arriveLater(w, l, at, t.bytes, writing(w, target, offset, data));
    }
    w.block->cluster->counters.globalRead += counted;
    w.block->cluster->counters.sharedWritten += t.bytes;
  });
}

// at[0]: the map; at[1]: shared.
void tensorStore(Warp &w, const Instruction &i) {
  BulkOperands o;
  addresses(w, i.at[1], o.from);
  forLanes(w.active, [&](int l) {
    Tile t = tileOf(w, l, i, i.at[0]);
    uint64_t from = sharedAddress(o.from[l]);
    resolve(w, l, Space::Shared, from, t.bytes, 128, Access::BulkRead);
    later(w, l, [&w, l, t, from] {
      const uint8_t *base = resolve(w, l, Space::Shared, from, t.bytes, 128, Access::BulkRead);
      auto offset = uint32_t(from & 0xffffff);
      forElements(t, [&](uint32_t at, uint64_t address) {
        if (address)
          memcpy(resolve(w, l, Space::Global, address, t.map.elementBytes, 1, Access::Write),
                 base + (swizzled(offset + at, t.map.swizzle) - offset), t.map.elementBytes);
      });
    });
    w.block->cluster->counters.globalWritten += t.bytes;
  });
}

} // namespace

void decodeBulkCopy(Decoder &d) {
  if (d.take("commit_group")) {
    d.expect(0, 0);
    return d.set([](Warp &w, const Instruction &) { forLanes(w.active, [&](int l) { ++w.storeGroup[size_t(l)]; }); });
  }
  if (d.take("wait_group")) {
    d.take("read"); // waits only for the reads: here the writes happen then, too
    d.expect(1, 1);
    d.i.selector = int32_t(d.immediate(0));
    return d.set([](Warp &w, const Instruction &i) {
      std::vector<AsyncWork> due;
      std::erase_if(w.stores, [&](const AsyncWork &store) {
        bool is = (w.active >> store.lane & 1) && store.group + uint32_t(i.selector) < w.storeGroup[size_t(store.lane)];
        if (is)
          due.push_back(store);
        return is;
      });
      for (const AsyncWork &store : due)
        store.run();
    });
  }
  bool tensor = d.take("tensor");
  if (tensor) {
    d.i.count = uint8_t(1 + d.choose({"1d", "2d", "3d", "4d", "5d"}));
    d.ignore({"tile"});
  }
  bool hint = d.take("L2::cache_hint"), multicast = d.take("multicast::cluster");
  // The first of the two state spaces is the destination's.
  auto first = std::find_if(d.s.modifiers.begin(), d.s.modifiers.end(),
                            [](const std::string &m) { return m == "global" || m.starts_with("shared::"); });
  bool loads = first != d.s.modifiers.end() && *first != "global";
  bool shared = d.take("shared::cluster"), own = d.take("shared::cta"), global = d.take("global");
  if (loads ? !d.take("mbarrier::complete_tx::bytes") : !d.take("bulk_group"))
    d.fail("completes by .mbarrier::complete_tx::bytes into shared memory and by .bulk_group out of it");
  if (!(shared || own) || (!global && !(shared && own)) || (!loads && !own) || (tensor && !global))
    d.fail("no copy between these state spaces");
  size_t operands = (loads ? (tensor ? 3 : 4) + (multicast ? 1 : 0) : (tensor ? 2 : 3)) + (hint ? 1 : 0);
  d.expect(operands, operands);
  auto &o = d.s.operands;
  if (hint)
    d.source(operands - 1, Type::B64);
  d.i.op = {None, None};
  size_t mapAt = loads ? 1 : 0;
  auto mapPlace = [&] {
    Operand map = o[mapAt];
    if (map.kind != Operand::Kind::Address || map.elements.size() != 2)
      d.fail("expected [map, {coordinates}]");
    for (const Operand &c : d.vector(map.elements[1], d.i.count))
      d.i.op.push_back(d.source(c, Type::S32));
    map.elements.pop_back();
    return d.address(map, Space::Generic);
  };
  if (loads) {
    d.i.at[0] = d.address(o[0], Space::Shared);
    d.i.at[1] = tensor ? mapPlace() : d.address(o[1], global ? Space::Global : Space::Shared);
    if (!tensor)
      d.i.op[0] = d.source(2, Type::U32);
    d.i.at[2] = d.address(o[tensor ? 2 : 3], Space::Shared);
    if (multicast)
      d.i.op[1] = d.source(tensor ? 3 : 4, Type::B16);
    return d.set(tensor ? tensorLoad : bulkLoad);
  }
  if (multicast)
    d.fail("unknown modifier .multicast::cluster");
  d.i.at[0] = tensor ? mapPlace() : d.address(o[0], Space::Global);
  d.i.at[1] = d.address(o[1], Space::Shared);
  if (!tensor)
    d.i.op[0] = d.source(2, Type::U32);
  d.set(tensor ? tensorStore : bulkStore);
}

// The barrier counts this arrival once the thread's preceding cp.async are complete: complete them at once.
void decodeBarrierCopy(Decoder &d) {
  if (!d.take("arrive"))
    d.fail("only cp.async.mbarrier.arrive is known");
  d.i.selector = d.take("noinc");
  bool shared = d.take("shared") || d.take("shared::cta");
  if (d.type() != Type::B64)
    d.fail("is for b64");
  d.expect(1, 1);
  d.i.at[0] = d.address(d.s.operands[0], shared ? Space::Shared : Space::Generic);
  d.set([](Warp &w, const Instruction &i) {
    finishCopies(w, -1);
    uint64_t address[32];
    addresses(w, i.at[0], address);
    // Without .noinc the pending count is incremented before the arrival.
    forLanes(w.active, [&](int l) {
      BarrierPlace place = barrierAt(w, l, address[l]);
      BarrierState s = place.load();
      s.pending += !i.selector;
      place.store(s);
      arriveAt(w, l, place, 1);
    });
  });
}

void addAsync(Opcodes &o) { o["mbarrier"] = mbarrier; }

} // namespace xfc::ptx
