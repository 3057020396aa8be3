// Runs launches: clusters of blocks over host threads, each warp until it waits, with divergence and reconvergence of
// lanes.
#include "Shadow.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

namespace xfc::ptx {

void leaveWarpgroup(Warp &w); // Warpgroup.cpp

static std::string text(Dimensions d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

Fault::Fault(std::string kernel, int line, Dimensions block, Dimensions thread, std::string reason)
    : Error("kernel " + kernel + ", PTX line " + std::to_string(line) + ", block " + text(block) + ", thread " +
            text(thread) + ": " + reason),
      kernel(std::move(kernel)), line(line), block(block), thread(thread), reason(std::move(reason)) {}

Dimensions unflatten(uint64_t index, Dimensions in) {
  return {uint32_t(index % in.x), uint32_t(index / in.x % in.y), uint32_t(index / (uint64_t(in.x) * in.y))};
}

void Warp::fault(int lane, const std::string &reason) const {
  const Launch &launch = block->cluster->launch;
  throw Fault(launch.function.name, current->line, block->index, unflatten(number * 32 + uint32_t(lane), launch.block),
              reason);
}

std::pair<Block *, uint32_t> sharedPlace(Warp &w, int lane, uint64_t address, uint64_t bytes) {
  Block *block = w.block;
  const Launch &launch = block->cluster->launch;
  uint64_t offset = address & 0xffffff, rank = address >> 24, size = launch.sharedBytes;
  if (rank > launch.cluster.count() || offset + bytes > size)
    w.fault(lane, "shared memory out of bounds: " + std::to_string(bytes) + " bytes at " +
                      std::to_string(rank ? offset : address) + " of " + std::to_string(size));
  if (rank && !launch.cooperative)
    block = &block->cluster->blocks[rank - 1];
  return {block, uint32_t(offset)};
}

uint8_t *resolve(Warp &w, int by, Space space, uint64_t address, uint32_t bytes, uint32_t align, Access access) {
  int lane = by == EveryLane ? std::countr_zero(w.active) : by;
  const Launch &launch = w.block->cluster->launch;
  if (space == Space::Generic) {
    switch (address & WindowMask) {
    case SharedWindow:
      space = Space::Shared;
      address &= ~WindowMask;
      break;
    case LocalWindow:
      space = Space::Local;
      address &= ~WindowMask;
      break;
    case ParamWindow:
      space = Space::Param;
      address &= ~WindowMask;
      break;
    default:
      space = Space::Global;
    }
  }
  if (address % align)
    w.fault(lane, "misaligned address: " + std::to_string(address & ~WindowMask & 0xfffffffff) + " is no multiple of " +
                      std::to_string(align));
  auto outside = [&](const char *what, uint64_t size) {
    w.fault(lane, std::string(what) + " memory out of bounds: " + std::to_string(bytes) + " bytes at " +
                      std::to_string(int64_t(address)) + " of " + std::to_string(size));
  };
  switch (space) {
  case Space::Shared: {
    auto [block, offset] = sharedPlace(w, lane, address, bytes);
    if (SharedShadow *shadow = w.block->cluster->shadow.get())
      shadow->access(w, by, *block, offset, bytes, access);
    return block->shared.get() + offset;
  }
  case Space::Local: {
    uint64_t size = launch.function.frame.local;
    if (address > size || bytes > size - address)
      outside("local", size);
    return w.local + size * uint64_t(lane) + address;
  }
  case Space::Param: {
    uint64_t size = launch.parameters.size();
    if (address > size || bytes > size - address)
      outside("parameter", size);
    if (!onlyReads(access))
      w.fault(lane, "a write to a parameter");
    return const_cast<uint8_t *>(launch.parameters.data()) + address;
  }
  default:
    break;
  }
  std::string why;
  Allocation *a = launch.memory.find(address, bytes, &why);
  if (!a)
    w.fault(lane, "global memory out of bounds: " + why);
  if (a->constant && !onlyReads(access))
    w.fault(lane, "a write to constant memory");
  if (launch.shadow)
    launch.shadow->access(w, lane, *a, address - a->address, bytes, access);
  return a->data.get() + (address - a->address);
}

// ---- launching

Cluster::Cluster(const Launch &launch) : launch(launch) {
  executed.assign(launch.function.program->kinds.size(), 0);
  const Frame &frame = launch.function.frame;
  auto count = uint32_t(launch.together().count());
  auto threads = uint32_t(launch.block.count()), warps = (threads + 31) / 32;
  blocks.resize(count);
  for (uint32_t rank = 0; rank < count; ++rank) {
    Block &block = blocks[rank];
    block.cluster = this;
    block.rank = rank;
    block.shared = std::make_unique<uint8_t[]>(launch.sharedBytes);
    block.warps.resize(warps);
    for (uint32_t n = 0; n < warps; ++n) {
      Warp &warp = block.warps[n];
      warp.block = &block;
      warp.number = n;
      size_t registers = (frame.registers + 63) / 64 * 64;
      storage.push_back(std::make_unique<uint8_t[]>(registers + size_t(frame.local) * 32 + 64));
      warp.registers = reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(storage.back().get()) + 63) / 64 * 64);
      warp.local = warp.registers + registers;
    }
  }
  if (launch.options.checks)
    shadow = std::make_unique<SharedShadow>(*this, launch.function.narrowest);
}

Cluster::~Cluster() = default;

static uint32_t special(const std::string &name, const Warp &warp, uint32_t lane, Dimensions thread) {
  const Block &block = *warp.block;
  const Launch &launch = block.cluster->launch;
  auto axis = [&](Dimensions d) { return name.back() == 'x' ? d.x : name.back() == 'y' ? d.y : d.z; };
  Dimensions grid = launch.grid, cluster = launch.cluster, at = block.index;
  Dimensions clusters{grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z};
  std::string stem = name.substr(0, name.find('.'));
  if (stem == "%tid")
    return axis(thread);
  if (stem == "%ntid")
    return axis(launch.block);
  if (stem == "%ctaid")
    return axis(at);
  if (stem == "%nctaid")
    return axis(grid);
  if (stem == "%laneid")
    return lane;
  if (stem == "%warpid")
    return warp.number;
  if (stem == "%nwarpid")
    return uint32_t(block.warps.size());
  if (stem == "%clusterid")
    return axis({at.x / cluster.x, at.y / cluster.y, at.z / cluster.z});
  if (stem == "%nclusterid")
    return axis(clusters);
  if (stem == "%cluster_ctaid")
    return axis({at.x % cluster.x, at.y % cluster.y, at.z % cluster.z});
  if (stem == "%cluster_nctaid")
    return axis(cluster);
  if (stem == "%cluster_ctarank")
    return launch.cooperative ? 0 : block.rank;
  if (stem == "%cluster_nctarank")
    return uint32_t(cluster.count());
  if (stem == "%is_explicit_cluster")
    return cluster.count() > 1;
  if (stem == "%lanemask_eq")
    return 1u << lane;
  if (stem == "%lanemask_lt")
    return (1u << lane) - 1;
  if (stem == "%lanemask_le")
    return (2u << lane) - 1;
  if (stem == "%lanemask_gt")
    return ~((2u << lane) - 1);
  if (stem == "%lanemask_ge")
    return ~((1u << lane) - 1);
  if (stem == "%dynamic_smem_size")
    return uint32_t(launch.sharedBytes - launch.function.description.staticShared);
  if (stem == "%total_smem_size")
    return uint32_t(launch.sharedBytes);
  return 0; // %smid, %gridid and others that a program must not depend on
}

void Cluster::start(Block &block) {
  const Frame &frame = launch.function.frame;
  block.threads = uint32_t(launch.block.count());
  block.barriers = {};
  block.warpgroups.assign((block.warps.size() + 3) / 4, {});
  // Poison shared memory and registers, so that nothing is left from another block.
  memset(block.shared.get(), 0xff, launch.sharedBytes);
  for (Warp &warp : block.warps) {
    memset(warp.registers, 0xff, frame.registers);
    memset(warp.local, 0xff, size_t(frame.local) * 32);
    for (auto &[offset, bytes] : frame.constants)
      memcpy(warp.registers + offset, bytes.data(), bytes.size());
    uint32_t lanes = std::min(32u, block.threads - warp.number * 32);
    for (auto &[offset, name] : frame.specials)
      for (uint32_t l = 0; l < 32; ++l)
        warp.at<uint32_t>(offset)[l] = special(name, warp, l, unflatten(warp.number * 32 + l, launch.block));
    warp.alive = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warp.meetings.clear();
    warp.copies.clear();
    warp.copyGroup = {};
    warp.stores.clear();
    warp.storeGroup = {};
    warp.products.clear();
    warp.clusterArrived = false;
    warp.productGroup = 0;
    warp.productRegisters.assign(launch.function.productRegisters, {});
    warp.warpgroupSteps = 0;
    warp.groups.clear();
    warp.groups.push_back({warp.alive, 0, {}, {}, nullptr});
  }
}

void Cluster::run(Dimensions at) {
  first = at;
  for (Block &block : blocks) {
    Dimensions in = unflatten(block.rank, launch.together());
    block.index = {at.x + in.x, at.y + in.y, at.z + in.z};
  }
  barrier = {};
  bulk.clear();
  for (Block &block : blocks)
    start(block);
  if (shadow)
    shadow->reset();
  // A warp that polls unsuccessfully runs without progress; if all warps do so for long, nothing can change any more.
  constexpr int patience = 100000;
  std::vector<Block *> turns;
  for (Block &block : blocks)
    turns.push_back(&block);
  std::mt19937 random(launch.options.order);
  for (int idle = 0;;) {
    bool left = false, ran = false, advanced = false;
    Warp *stuck = nullptr;
    if (launch.options.order) // another order in each round
      std::shuffle(turns.begin(), turns.end(), random);
    for (Block *block : turns)
      for (Warp &warp : block->warps)
        if (!warp.groups.empty()) {
          warp.yielded = false;
          bool runs = runWarp(warp);
          ran |= runs;
          advanced |= runs && !warp.yielded;
          if (!warp.groups.empty()) {
            left = true;
            stuck = stuck ? stuck : &warp;
          }
        }
    if (!left)
      return deliver();
    idle = advanced ? 0 : idle + 1;
    if (!ran || idle > patience) {
      const Group &group = stuck->groups.front();
      stuck->current = &launch.function.code[group.pc - (group.pc ? 1 : 0)];
      stuck->fault(std::countr_zero(group.mask), "deadlock: every thread that is left waits, this one here");
    }
  }
}

void Cluster::deliver() {
  for (auto &copy : std::exchange(bulk, {}))
    copy();
}

static void completeBarrier(Barrier &b, uint32_t threads) {
  if (!b.arrived || b.arrived != threads)
    return;
  b.arrived = 0;
  ++b.generation;
  b.result = std::exchange(b.reduction, 0);
  b.completed = std::exchange(b.clock, {});
}

static void completeBarriers(Block &block) {
  for (Barrier &b : block.barriers)
    completeBarrier(b, b.expected ? b.expected : block.threads);
  uint32_t threads = 0;
  for (const Block &other : block.cluster->blocks)
    threads += other.threads;
  completeBarrier(block.cluster->barrier, threads);
}

static uint32_t newMeeting(Warp &w, uint32_t pc, uint32_t expected, const std::vector<uint32_t> &returns) {
  for (uint32_t i = 0; i < w.meetings.size(); ++i)
    if (!w.meetings[i].expected) {
      w.meetings[i] = {pc, expected, 0, returns};
      return i;
    }
  w.meetings.push_back({pc, expected, 0, returns});
  return uint32_t(w.meetings.size() - 1);
}

static void leave(Warp &w, const Group &group, uint32_t lanes) {
  std::erase_if(w.stores, [&](const AsyncWork &store) {
    bool leaves = lanes >> store.lane & 1;
    if (leaves)
      store.run();
    return leaves;
  });
  w.alive &= ~lanes;
  w.block->threads -= uint32_t(std::popcount(lanes));
  if (!w.alive)
    leaveWarpgroup(w);
  for (size_t k = group.meeting.size(); k-- > 0;) {
    Meeting &m = w.meetings[group.meeting[k]];
    m.expected &= ~lanes;
    if (m.arrived && m.arrived == m.expected) {
      Group met{m.arrived, m.pc, {group.meeting.begin(), group.meeting.begin() + ptrdiff_t(k)}, m.returns, nullptr};
      m.expected = 0;
      w.groups.push_back(std::move(met));
    }
  }
  completeBarriers(*w.block);
}

namespace {
enum class Turn : uint8_t { Gone, Waits, Yields };
}

static Turn execute(Warp &w, Group &g, std::vector<uint64_t> &executed, uint64_t &lanes) {
  const Instruction *code = w.block->cluster->launch.function.code.data();
  constexpr int slice = 1 << 20; // lets other groups run while one polls memory
  uint32_t pc = g.pc;
  auto stopOf = [&] { return g.meeting.empty() ? None : w.meetings[g.meeting.back()].pc; };
  uint32_t stop = stopOf();
  w.group = &g;
  for (int n = 0; n < slice; ++n) {
    while (pc == stop) {
      Meeting &m = w.meetings[g.meeting.back()];
      m.arrived |= g.mask;
      if (m.arrived != m.expected)
        return Turn::Gone;
      g.mask = m.expected;
      m.expected = 0;
      g.meeting.pop_back();
      stop = stopOf();
    }
    const Instruction &i = code[pc];
    uint32_t active = g.mask;
    if (i.guard != None) {
      uint32_t p = *w.at<uint32_t>(i.guard);
      active &= i.negated ? ~p : p;
    }
    w.active = active;
    w.current = &i;
    ++executed[i.kind];
    lanes += uint64_t(std::popcount(active));
    switch (i.flow) {
    case Flow::Next:
      if (active)
        i.run(w, i);
      ++pc;
      break;
    case Flow::Wait:
      ++pc;
      if (!active)
        break;
      i.run(w, i);
      if (g.waiting && active != g.mask)
        w.fault("waited at by a part of the threads that come here together");
      if (g.waiting || w.yielded) {
        g.pc = pc;
        return g.waiting ? Turn::Waits : Turn::Yields;
      }
      break;
    case Flow::Branch:
    case Flow::Table: {
      if (!active) {
        ++pc;
        break;
      }
      // Find each lane's target; this group continues at that of the lowest lane.
      uint32_t next[32], targets = 0;
      forLanes(g.mask, [&](int l) {
        next[l] = pc + 1;
        if (active >> l & 1) {
          next[l] = i.target;
          if (i.flow == Flow::Table) {
            uint32_t index = w.at<uint32_t>(i.op[0])[l];
            if (index >= i.table.size())
              w.fault(l, "brx.idx with index " + std::to_string(index) + " of " + std::to_string(i.table.size()) +
                             " targets");
            next[l] = i.table[index];
          }
        }
      });
      uint32_t rest = g.mask;
      bool meets = false;
      while (true) {
        uint32_t target = next[std::countr_zero(rest)], same = 0;
        forLanes(rest, [&](int l) { same |= next[l] == target ? 1u << l : 0; });
        if (targets++ == 0 && same != g.mask && i.reconverge != None && i.reconverge != stop) {
          g.meeting.push_back(newMeeting(w, i.reconverge, g.mask, g.returns));
          meets = true;
        }
        rest &= ~same;
        if (!rest) {
          g.mask = same;
          pc = target;
          break;
        }
        w.groups.push_front({same, target, g.meeting, g.returns, nullptr});
      }
      if (meets)
        stop = stopOf();
      break;
    }
    case Flow::Call:
      if (!active) {
        ++pc;
        break;
      }
      if (active != g.mask)
        w.fault("a call by a part of the threads that come here together");
      i.run(w, i); // copies the arguments
      g.returns.push_back(pc + 1);
      pc = i.target;
      break;
    case Flow::Return:
      pc = g.returns.back();
      g.returns.pop_back();
      break;
    case Flow::Exit:
      ++pc;
      if (!active)
        break;
      g.mask &= ~active;
      leave(w, g, active);
      if (!g.mask)
        return Turn::Gone;
      break;
    }
  }
  g.pc = pc;
  w.yielded = true;
  return Turn::Yields;
}

bool Cluster::runWarp(Warp &warp) {
  bool ran = false, advanced = false;
  for (size_t vain = 0; vain < warp.groups.size();) {
    Group group = std::move(warp.groups.front());
    warp.groups.pop_front();
    if (group.waiting) {
      if (!group.waiting()) {
        warp.groups.push_back(std::move(group));
        ++vain;
        continue;
      }
      group.waiting = nullptr;
    }
    ran = true;
    warp.yielded = false;
    Turn turn = execute(warp, group, executed, counters.lanes);
    vain = turn == Turn::Yields ? vain + 1 : 0;
    advanced |= turn != Turn::Yields;
    if (turn != Turn::Gone)
      warp.groups.push_back(std::move(group));
  }
  warp.yielded = ran && !advanced;
  return ran;
}

// ---- barriers

// bar and barrier: op[0] the barrier, op[1] the count or None, op[2] a predicate and op[3] a result of bar.red.
// selector: 0 sync, 1 arrive, 2 red.popc, 3 red.and, 4 red.or; selector2: 1 if the whole warp must arrive (.aligned);
// width: 1 if the predicate is negated.
void barrier(Warp &w, const Instruction &i) {
  if (i.selector2 && w.active != w.alive)
    w.fault("divergent barrier: only a part of the warp is here, lanes " + std::to_string(std::popcount(w.active)) +
            " of " + std::to_string(std::popcount(w.alive)));
  int first = std::countr_zero(w.active);
  uint32_t id = w.at<uint32_t>(i.op[0])[first];
  uint32_t expected = i.op[1] == None ? 0 : w.at<uint32_t>(i.op[1])[first];
  forLanes(w.active, [&](int l) {
    if (w.at<uint32_t>(i.op[0])[l] != id || (i.op[1] != None && w.at<uint32_t>(i.op[1])[l] != expected))
      w.fault(l, "the threads of a warp name different barriers or counts");
  });
  if (id >= 16)
    w.fault("barrier " + std::to_string(id) + " of 16");
  if (expected % 32)
    w.fault("a barrier's count of " + std::to_string(expected) + " is no multiple of 32");
  Barrier &b = w.block->barriers[id];
  if (b.arrived && b.expected != expected)
    w.fault("barrier " + std::to_string(id) + " has the count " + std::to_string(expected) +
            ", and others wait there for " + std::to_string(b.expected));
  b.expected = expected;
  // If a count is given, a warp with fewer than 32 threads counts as a whole one.
  uint32_t here = uint32_t(std::popcount(w.active));
  b.arrived += expected && w.active == w.alive ? 32 : here;
  if (expected && b.arrived > expected)
    w.fault("more threads at barrier " + std::to_string(id) + " than its count of " + std::to_string(expected));
  if (i.selector >= 2) {
    uint32_t p = *w.at<uint32_t>(i.op[2]) ^ (i.width ? ~0u : 0);
    b.reduction += uint32_t(std::popcount(p & w.active));
  }
  SharedShadow *shadow = w.block->cluster->shadow.get();
  if (shadow)
    shadow->release(w, b.clock);
  uint32_t generation = b.generation;
  completeBarriers(*w.block);
  if (i.selector == 1)
    return;
  uint32_t mask = w.active, all = expected ? expected : w.block->threads;
  w.group->waiting = [&w, &b, &i, shadow, generation, mask, all] {
    if (b.generation == generation)
      return false;
    if (shadow)
      shadow->acquire(w, b.completed);
    w.active = mask;
    uint32_t count[32];
    std::fill(count, count + 32, b.result);
    if (i.selector == 2)
      w.put(i.op[3], count);
    else if (i.selector > 2)
      w.putPredicate(i.op[3], (i.selector == 3 ? b.result == all : b.result > 0) ? ~0u : 0);
    return true;
  };
}

// barrier.cluster.arrive (selector 0) and .wait (1); a warp's threads arrive and wait together.
void clusterBarrier(Warp &w, const Instruction &i) {
  if (w.block->cluster->launch.cooperative)
    w.fault("barrier.cluster in a cooperative launch is not known");
  if (w.active != w.alive)
    w.fault("divergent barrier: only a part of the warp is here");
  Barrier &b = w.block->cluster->barrier;
  SharedShadow *shadow = w.block->cluster->shadow.get();
  if (i.selector == 0) {
    if (w.clusterArrived)
      w.fault("barrier.cluster.arrive twice without a wait");
    w.clusterArrived = true;
    w.clusterGeneration = b.generation;
    b.arrived += uint32_t(std::popcount(w.active));
    if (shadow)
      shadow->release(w, b.clock);
    return completeBarriers(*w.block);
  }
  if (!w.clusterArrived)
    w.fault("barrier.cluster.wait without an arrive");
  w.clusterArrived = false;
  w.group->waiting = [&w, &b, shadow, generation = w.clusterGeneration] {
    if (b.generation == generation)
      return false;
    if (shadow)
      shadow->acquire(w, b.completed);
    return true;
  };
}

// ---- the interface

Interpreter::Interpreter(Options options)
    : options(options), memory(std::make_unique<Memory>(options.memory, options.checks)) {}
Interpreter::~Interpreter() = default;

uint64_t Interpreter::allocate(size_t bytes) { return memory->allocate(bytes).address; }
void Interpreter::free(uint64_t address) { memory->free(address); }
void Interpreter::write(uint64_t to, const void *from, size_t bytes) { memcpy(memory->bytes(to, bytes), from, bytes); }
void Interpreter::read(void *to, uint64_t from, size_t bytes) const { memcpy(to, memory->bytes(from, bytes), bytes); }
void Interpreter::copy(uint64_t to, uint64_t from, size_t bytes) {
  memmove(memory->bytes(to, bytes), memory->bytes(from, bytes), bytes);
}
void Interpreter::fill(uint64_t to, uint8_t value, size_t bytes) { memset(memory->bytes(to, bytes), value, bytes); }
size_t Interpreter::memoryUsed() const { return memory->used(); }

const Program &Interpreter::load(const std::string &text) {
  return *programs.emplace_back(decode(parse(text), *memory));
}

void Interpreter::unload(const Program &program) {
  for (uint64_t address : program.allocations)
    memory->free(address);
  std::erase_if(programs, [&](const auto &p) { return p.get() == &program; });
}

std::vector<std::string> Interpreter::entries(const Program &program) const {
  std::vector<std::string> names;
  for (const auto &f : program.functions)
    names.push_back(f->name);
  return names;
}

Interpreter::Entry Interpreter::entry(const Program &program, const std::string &name) const {
  for (const auto &f : program.functions)
    if (f->name == name)
      return f->description;
  throw Error("no entry " + name + " in the module");
}

uint64_t Interpreter::variable(const Program &program, const std::string &name) const {
  auto found = program.variables.find(name);
  if (found == program.variables.end())
    throw Error("no variable " + name + " in the module");
  return found->second;
}

void Interpreter::launch(const Entry &entry, Dimensions grid, Dimensions block, size_t dynamicShared,
                         const void *parameters, Dimensions cluster, bool cooperative) {
  const Function &function = *entry.function;
  auto wrong = [&](const std::string &what) { throw Error("launch of " + function.name + ": " + what); };
  uint64_t threads = block.count(), grids = grid.count();
  if (!grids || !threads)
    wrong("an empty grid " + text(grid) + " or block " + text(block));
  if (threads > entry.maximum)
    wrong("a block of " + std::to_string(threads) + " threads, at most " + std::to_string(entry.maximum));
  if (entry.required.x && (block.x != entry.required.x || block.y != entry.required.y || block.z != entry.required.z))
    wrong("a block " + text(block) + " where .reqntid is " + text(entry.required));
  if (grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
    wrong("a grid " + text(grid) + " is no multiple of the cluster " + text(cluster));
  if (cooperative && cluster.count() > 1)
    wrong("clusters in a cooperative launch are not known");
  Launch launch{function, *memory, options, grid, block, cluster, cooperative, entry.staticShared + dynamicShared, {}};
  const auto *bytes = static_cast<const uint8_t *>(parameters);
  launch.parameters.assign(bytes, bytes + entry.parameterBytes);
  GlobalShadow shadow(function.narrowest, !function.globalAtomics);
  if (options.checks)
    launch.shadow = &shadow;

  const Dimensions together = launch.together();
  Dimensions clusters{grid.x / together.x, grid.y / together.y, grid.z / together.z};
  uint64_t total = clusters.count();
  std::atomic<uint64_t> next = 0;
  // Throw the fault of the lowest block, whatever thread found one first: blocks start in ascending order, so all
  // earlier blocks have run or are running.
  std::mutex mutex;
  uint64_t failed = total;
  std::exception_ptr failure;
  auto work = [&] {
    Cluster state(launch);
    for (uint64_t c; (c = next++) < total;) {
      try {
        Dimensions at = unflatten(c, clusters);
        state.run({at.x * together.x, at.y * together.y, at.z * together.z});
      } catch (...) {
        std::lock_guard lock(mutex);
        if (c < failed) {
          failed = c;
          failure = std::current_exception();
        }
        next = total;
        break;
      }
    }
    std::lock_guard lock(mutex);
    for (size_t k = 0; k < state.executed.size(); ++k)
      if (state.executed[k])
        counts.executed[function.program->kinds[k]] += state.executed[k];
    counts.lanes += state.counters.lanes;
    counts.globalRead += state.counters.globalRead;
    counts.globalWritten += state.counters.globalWritten;
    counts.sharedRead += state.counters.sharedRead;
    counts.sharedWritten += state.counters.sharedWritten;
  };
  auto workers =
      size_t(function.globalAtomics || launch.shadow ? 1 : std::clamp<uint64_t>(uint64_t(options.threads), 1, total));
  std::vector<std::thread> threadsOfHost;
  for (size_t t = 1; t < workers; ++t)
    threadsOfHost.emplace_back(work);
  work();
  for (std::thread &t : threadsOfHost)
    t.join();
  ranges = launch.shadow ? shadow.accessed() : std::vector<Accessed>();
  if (failure)
    std::rethrow_exception(failure);
}

} // namespace xfc::ptx
