// A decoded module, and the state in which it runs: clusters of blocks of warps of 32 lanes.
#pragma once

#include "Memory.h"
#include "Syntax.h"
#include <deque>
#include <functional>
#include <utility>

namespace xfc::ptx {

struct Warp;
struct Instruction;
using Handler = void (*)(Warp &, const Instruction &);
constexpr uint32_t None = ~0u;

// The next action of a warp's scheduler after the handler returns.
enum class Flow : uint8_t { Next, Branch, Table, Call, Return, Exit, Wait };

// An address: a register (None: no register) and an offset.
struct Place {
  Space space = Space::Generic;
  bool narrow = false; // the register has 32 bits
  uint32_t reg = None;
  int64_t offset = 0;
};

// A decoded instruction. Operands are offsets into a warp's register file, which also holds constants and special
// registers, so that a handler only sees arrays of 32 lanes.
struct Instruction {
  Handler run = nullptr;
  std::vector<uint32_t> op;
  uint32_t guard = None;
  bool negated = false;
  Flow flow = Flow::Next;
  std::array<Place, 3> at;             // addresses
  uint8_t width = 0;                   // for a memory access: bytes per element
  uint8_t count = 1;                   // and the number of elements
  int32_t selector = 0, selector2 = 0; // defined by the handler
  uint32_t target = None;
  uint32_t reconverge = None; // where diverged lanes reconverge; None: at the end
  std::vector<uint32_t> table;
  int line = 0;
  uint32_t kind = 0; // index in Program::kinds
  // The Function::productRegisters that it accesses; for wgmma.mma_async those of D, then of A.
  std::vector<uint16_t> products;
  Handler unwatched = nullptr; // with `products`: the original handler, run after the access was recorded
};

// Registers, local memory and shared variables of an entry and all functions it calls: calls are not recursive, so each
// function has one fixed frame.
struct Frame {
  uint32_t registers = 0;
  uint32_t local = 0;
  uint32_t shared = 0;
  std::vector<std::pair<uint32_t, std::vector<uint8_t>>> constants; // bytes in the register file, set once
  std::vector<std::pair<uint32_t, std::string>> specials;           // special registers, set for each block
};

struct Function {
  const Program *program = nullptr;
  std::string name;
  bool entry = false;
  Frame frame;
  std::vector<Instruction> code; // followed by the code of its callees, each ending in Return
  bool globalAtomics = false;
  uint32_t narrowest = 0;        // bytes of the narrowest access, a power of two
  uint16_t productRegisters = 0; // how many registers are accumulators of a wgmma.mma_async, or fragments of its A
  Interpreter::Entry description;
};

struct Program {
  ModuleText text;
  std::vector<std::unique_ptr<Function>> functions;
  std::map<std::string, uint64_t> variables;
  std::vector<std::string> kinds;
  std::vector<uint64_t> allocations;
};

std::unique_ptr<Program> decode(ModuleText text, Memory &memory);

// ---- execution

struct Block;
struct Cluster;

// Lanes that run together. When a branch makes them diverge, each side gets a copy of `meeting`: the points where it
// waits for the others, outermost first.
struct Group {
  uint32_t mask = 0, pc = 0;
  std::vector<uint32_t> meeting; // indices of Warp::meetings
  std::vector<uint32_t> returns;
  std::function<bool()> waiting; // if set, the group cannot run until it returns true
};

struct Meeting {
  uint32_t pc;
  uint32_t expected, arrived;
  std::vector<uint32_t> returns;
};

struct PendingCopy { // a pending cp.async
  uint8_t lane, bytes;
  uint32_t group;
  uint32_t to; // shared offset
  std::array<uint8_t, 16> data;
};

struct AsyncWork { // work of the async proxy, done when it is waited for
  int lane;
  uint32_t group;
  std::function<void()> run;
};

// wgmma's rules for a register: a wgmma.fence is required between any access to it and a product that accesses it,
// except between consecutive products of the same shape that accumulate in it; and it must not be accessed while a
// product is pending.
struct ProductRegister {
  bool fenced = false;   // a wgmma.fence has come since the last access by another instruction
  int line = 0;          // the line of that access
  uint32_t adds = 0;     // the shape and type of the products that accumulated in it since the fence
  uint32_t underWay = 0; // products not waited for yet
};

// A wgmma instruction as a warp issues it. The four warps of a warpgroup must issue the same ones.
struct WarpgroupStep {
  const Instruction *instruction;
  uint64_t a = 0, b = 0; // descriptors
  uint32_t adds = 0;     // scale-d
  bool operator==(const WarpgroupStep &) const = default;
};
struct Warpgroup {
  std::deque<WarpgroupStep> steps; // from number `first` on, those that some warp has not issued yet
  uint64_t first = 0;
};

struct Warp {
  Block *block = nullptr;
  uint32_t number = 0;
  uint32_t alive = 0;  // lanes that have not exited
  uint32_t active = 0; // lanes that the current instruction runs for
  const Instruction *current = nullptr;
  uint8_t *registers = nullptr;
  uint8_t *local = nullptr;
  std::deque<Group> groups;
  std::vector<Meeting> meetings;
  Group *group = nullptr; // the running group
  bool yielded = false;   // the handler found that it cannot make progress now
  std::vector<PendingCopy> copies;
  std::array<uint32_t, 32> copyGroup{}; // committed groups, by lane
  std::vector<AsyncWork> stores;        // cp.async.bulk out of shared memory
  std::array<uint32_t, 32> storeGroup{};
  std::vector<AsyncWork> products; // wgmma
  uint32_t productGroup = 0;
  std::vector<ProductRegister> productRegisters; // one for each of Function::productRegisters
  uint64_t warpgroupSteps = 0;                   // the number of steps issued
  bool clusterArrived = false;
  uint32_t clusterGeneration = 0;

  template <class T> T *at(uint32_t offset) { return reinterpret_cast<T *>(registers + offset); }
  // Writes the active lanes of a register.
  template <class T> void put(uint32_t reg, const T *values) {
    T *to = at<T>(reg);
    if (active == ~0u) {
      __builtin_memcpy(to, values, 32 * sizeof(T));
    } else {
      for (int l = 0; l < 32; ++l)
        to[l] = active >> l & 1 ? values[l] : to[l];
    }
  }
  void putPredicate(uint32_t reg, uint32_t bits) {
    uint32_t &to = *at<uint32_t>(reg);
    to = (to & ~active) | (bits & active);
  }
  [[noreturn]] void fault(int lane, const std::string &reason) const;
  [[noreturn]] void fault(const std::string &reason) const { fault(std::countr_zero(active), reason); }
};

template <class F> void forLanes(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1)
    f(std::countr_zero(mask));
}

class SharedShadow;
class GlobalShadow;
Dimensions unflatten(uint64_t index, Dimensions in);

struct Barrier {
  uint32_t arrived = 0, expected = 0, generation = 0;
  uint32_t reduction = 0; // bar.red: threads whose predicate held
  uint32_t result = 0;
  std::vector<uint32_t> clock, completed; // of the warps that have arrived, and of the previous arrival (SharedShadow)
};

struct Block {
  Cluster *cluster = nullptr;
  Dimensions index;
  uint32_t rank = 0; // within the cluster
  std::unique_ptr<uint8_t[]> shared;
  std::array<Barrier, 16> barriers;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  uint32_t threads = 0; // that have not exited
};

struct Launch {
  const Function &function;
  Memory &memory;
  const Options &options;
  Dimensions grid, block, cluster;
  bool cooperative; // all blocks run together, though they form no cluster
  size_t sharedBytes;
  std::vector<uint8_t> parameters;
  GlobalShadow *shadow = nullptr; // set if checks are on
  Dimensions together() const { return cooperative ? grid : cluster; }
};

// The state with which a host thread runs blocks together: those of one cluster after the other, or, of a cooperative
// launch, all of them.
struct Cluster {
  explicit Cluster(const Launch &launch);
  ~Cluster();
  void run(Dimensions first); // index of its first block

  const Launch &launch;
  Dimensions first;
  std::vector<Block> blocks;
  std::vector<uint64_t> executed; // by kind
  Counters counters;
  std::unique_ptr<SharedShadow> shadow; // set if checks are on
  std::vector<std::function<void()>>
      bulk; // pending copies into shared memory; they complete when an mbarrier is waited for
  void deliver();
  Barrier barrier; // of all threads of the cluster

private:
  std::vector<std::unique_ptr<uint8_t[]>> storage;
  bool runWarp(Warp &warp); // false if none of its groups could run
  void start(Block &block);
};

// ---- memory as a lane sees it (all instructions access memory through these functions)

// Async: being written until it is waited for. Barrier: an mbarrier, which orders accesses to itself. NonCoherent:
// ld.global.nc. BulkRead, BulkWrite: like Read and Async, but by the async proxy (bulk copies, wgmma).
enum class Access : uint8_t { Read, NonCoherent, Write, Atomic, Async, Barrier, BulkRead, BulkWrite };
inline bool onlyReads(Access a) { return a == Access::Read || a == Access::NonCoherent || a == Access::BulkRead; }
// Resolves a shared address to its block (in a cluster: the rank plus 1 above bit 24; 0 is the warp's own) and offset,
// or faults.
std::pair<Block *, uint32_t> sharedPlace(Warp &w, int lane, uint64_t address, uint64_t bytes);
constexpr int EveryLane = 255; // an access of the warp as a whole
// The addresses that the active lanes name.
void addresses(Warp &w, const Place &place, uint64_t *out);
// The bytes that lane `lane` accesses at an address of a space, or a fault.
uint8_t *resolve(Warp &w, int lane, Space space, uint64_t address, uint32_t bytes, uint32_t align, Access access);

} // namespace xfc::ptx
