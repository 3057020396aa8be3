// Executes loads, stores, atomics, cp.async, and the instructions that order them.
#include "Decoder.h"
#include "Shadow.h"
#include <cstring>

namespace xfc::ptx {

void addresses(Warp &w, const Place &place, uint64_t *out) {
  auto offset = uint64_t(place.offset);
  if (place.reg == None) {
    for (int l = 0; l < 32; ++l)
      out[l] = offset;
  } else if (place.narrow) {
    const auto *base = w.at<uint32_t>(place.reg);
    for (int l = 0; l < 32; ++l)
      out[l] = base[l] + offset;
  } else {
    const auto *base = w.at<uint64_t>(place.reg);
    for (int l = 0; l < 32; ++l)
      out[l] = base[l] + offset;
  }
}

namespace {

// Finds the bytes that each active lane accesses.
void locate(Warp &w, const Place &place, uint32_t bytes, Access access, uint8_t **out) {
  uint64_t address[32];
  addresses(w, place, address);
  Cluster &cluster = *w.block->cluster;
  uint64_t total = uint64_t(bytes) * uint64_t(std::popcount(w.active));
  bool writes = access == Access::Write || access == Access::Atomic, reads = access != Access::Write;
  if (place.space == Space::Shared) {
    cluster.counters.sharedRead += reads ? total : 0;
    cluster.counters.sharedWritten += writes ? total : 0;
    // Fast path: all addresses are valid and in the block itself.
    if (uint64_t size = cluster.launch.sharedBytes; size >= bytes) {
      bool all = true;
      for (int l = 0; l < 32; ++l) {
        bool in = address[l] <= size - bytes && !(address[l] & (bytes - 1));
        all &= in || !(w.active >> l & 1);
        out[l] = w.block->shared.get() + (in ? address[l] : 0);
      }
      if (all) {
        if (SharedShadow *shadow = cluster.shadow.get())
          shadow->accessByLanes(w, address, bytes, access);
        return;
      }
    }
  } else if (place.space <= Space::Const) {
    cluster.counters.globalRead += reads ? total : 0;
    cluster.counters.globalWritten += writes ? total : 0;
    // Fast path: all lanes are in one allocation.
    const Allocation *a = cluster.launch.memory.at(address[std::countr_zero(w.active)]);
    if (a && a->live && !(a->constant && writes)) {
      bool all = true;
      for (int l = 0; l < 32; ++l) {
        uint64_t offset = address[l] - a->address;
        bool in = offset < a->bytes && bytes <= a->bytes - offset && !(address[l] & (bytes - 1));
        all &= in || !(w.active >> l & 1);
        out[l] = a->data.get() + (in ? offset : 0);
      }
      if (all) {
        if (GlobalShadow *shadow = cluster.launch.shadow)
          forLanes(w.active, [&](int l) { shadow->access(w, l, *a, address[l] - a->address, bytes, access); });
        return;
      }
    }
  }
  forLanes(w.active, [&](int l) { out[l] = resolve(w, l, place.space, address[l], bytes, bytes, access); });
}

Space spaceOf(Decoder &d) {
  if (d.take("shared::cta") || d.take("shared::cluster"))
    return Space::Shared;
  if (d.take("param::entry") || d.take("param::func"))
    return Space::Param;
  constexpr Space spaces[] = {Space::Global, Space::Shared, Space::Param, Space::Local, Space::Const, Space::Generic};
  return spaces[d.choose({"global", "shared", "param", "local", "const"}, 5)];
}

// How an access to global memory orders others in a cooperative launch: Instruction::selector2. A strong one races with
// no other strong one.
enum Order { Strong = 1, Acquires = 2, Releases = 4 };
int orderOf(Decoder &d) {
  int order = 0;
  for (const char *name : {"relaxed", "volatile", "mmio"})
    order |= d.take(name) ? Strong : 0;
  order |= d.take("acquire") ? Strong | Acquires : 0;
  order |= d.take("release") ? Strong | Releases : 0;
  order |= d.take("acq_rel") ? Strong | Acquires | Releases : 0;
  return order;
}

// Scope and cache hints make no difference, because memory here is coherent and accessed in order.
void ignoreHints(Decoder &d) {
  d.ignore({"weak",
            "cta",
            "cluster",
            "gpu",
            "sys",
            "ca",
            "cg",
            "cs",
            "lu",
            "cv",
            "wb",
            "wt",
            "L1::evict_normal",
            "L1::evict_unchanged",
            "L1::evict_first",
            "L1::evict_last",
            "L1::no_allocate",
            "L2::evict_first",
            "L2::evict_last",
            "L2::evict_normal",
            "L2::64B",
            "L2::128B",
            "L2::256B"});
}

int vectorOf(Decoder &d) { return d.take("v2") ? 2 : d.take("v4") ? 4 : 1; }

int registerBytes(const std::vector<Operand> &list, Type t) {
  for (const Operand &o : list)
    if (o.kind == Operand::Kind::Register)
      return std::max(2, Decoder::width(o));
    else if (o.kind == Operand::Kind::Special)
      return 4;
  return std::max(2, bytesOf(t));
}

// Orders the lanes' warp after those that have released at the places of a strong access, and before those that will
// acquire there: what has happened before a release has happened before what follows an acquire that sees it. A store
// ends what was released before; an atomic access continues it. A fence beside a relaxed access counts for nothing.
void passOrder(Warp &w, const Instruction &i, bool replaces) {
  SharedShadow *shadow = w.block->cluster->shadow.get();
  if (!shadow || i.at[0].space != Space::Global || !i.selector2 || !w.block->cluster->launch.cooperative)
    return;
  uint64_t address[32];
  addresses(w, i.at[0], address);
  forLanes(w.active, [&](int l) {
    if (i.selector2 & Acquires)
      shadow->acquire(w, shadow->released(address[l]));
    if (replaces)
      shadow->released(address[l]).clear();
    if (i.selector2 & Releases)
      shadow->release(w, shadow->released(address[l]));
  });
}

// A strong access counts as an atomic one where blocks may order themselves.
Access accessOf(const Warp &w, const Instruction &i, Access weak) {
  const bool strong = i.selector2 && i.at[0].space == Space::Global;
  return strong && w.block->cluster->launch.cooperative ? Access::Atomic : weak;
}

// op: the elements' registers. selector: 1 for .nc; selector2: Order. A strong load may be one of a loop that waits for
// another warp or block, which gets its turn.
template <class M, class R> void load(Warp &w, const Instruction &i) {
  uint8_t *from[32];
  uint32_t bytes = sizeof(M) * i.count;
  locate(w, i.at[0], bytes, i.selector ? Access::NonCoherent : accessOf(w, i, Access::Read), from);
  passOrder(w, i, /*replaces=*/false);
  if (i.flow == Flow::Wait)
    w.yielded = true;
  for (int k = 0; k < i.count; ++k) {
    R *to = w.at<R>(i.op[size_t(k)]);
    if (w.active == ~0u) {
      for (int l = 0; l < 32; ++l) {
        M value;
        memcpy(&value, from[l] + size_t(k) * sizeof(M), sizeof(M));
        to[l] = R(value);
      }
    } else {
      forLanes(w.active, [&](int l) {
        M value;
        memcpy(&value, from[l] + size_t(k) * sizeof(M), sizeof(M));
        to[l] = R(value);
      });
    }
  }
}
template <class M, class R> void store(Warp &w, const Instruction &i) {
  uint8_t *to[32];
  locate(w, i.at[0], uint32_t(sizeof(M) * i.count), accessOf(w, i, Access::Write), to);
  passOrder(w, i, /*replaces=*/true);
  forLanes(w.active, [&](int l) {
    for (int k = 0; k < i.count; ++k) {
      M value = M(w.at<R>(i.op[size_t(k)])[l]);
      memcpy(to[l] + size_t(k) * sizeof(M), &value, sizeof(M));
    }
  });
}

template <class M> Handler loadInto(int bytes) {
  return bytes == 2 ? load<M, uint16_t> : bytes == 4 ? load<M, uint32_t> : load<M, uint64_t>;
}
template <class M> Handler storeFrom(int bytes) {
  return bytes == 2 ? store<M, uint16_t> : bytes == 4 ? store<M, uint32_t> : store<M, uint64_t>;
}

void access(Decoder &d) {
  bool loads = d.s.opcode == "ld";
  d.i.selector2 = orderOf(d);
  ignoreHints(d);
  bool hint = d.take("L2::cache_hint");
  bool nonCoherent = loads && d.take("nc");
  d.i.selector = nonCoherent;
  Space space = spaceOf(d);
  if (nonCoherent && (space != Space::Global || d.i.selector2))
    d.fail(".nc is for weak accesses to .global");
  int count = vectorOf(d);
  Type t = d.type();
  if (t == Type::Pred || t == Type::B128 || bytesOf(t) * count > 16)
    d.fail("no such access");
  d.expect(2, hint ? 3 : 2);
  if (hint)
    d.source(2, Type::B64);
  d.i.at[0] = d.address(d.s.operands[loads ? 1 : 0], space);
  d.i.width = uint8_t(bytesOf(t));
  d.i.count = uint8_t(count);
  std::vector<Operand> list = d.vector(d.s.operands[loads ? 0 : 1], size_t(count));
  int bytes = registerBytes(list, t);
  for (const Operand &o : list) {
    Type in = bytes == 2 ? Type::B16 : bytes == 4 ? Type::B32 : Type::B64;
    if (bytes < bytesOf(t))
      d.fail("register " + o.name + " is too small");
    d.i.op.push_back(loads ? d.destination(o, in) : d.source(o, in));
  }
  if (loads) {
    const Flow flow = d.i.selector2 && space == Space::Global ? Flow::Wait : Flow::Next;
    switch (d.i.width) {
    case 1:
      return d.set(isSigned(t) ? loadInto<int8_t>(bytes) : loadInto<uint8_t>(bytes), flow);
    case 2:
      return d.set(isSigned(t) ? loadInto<int16_t>(bytes) : loadInto<uint16_t>(bytes), flow);
    case 4:
      return d.set(isSigned(t) ? loadInto<int32_t>(bytes) : loadInto<uint32_t>(bytes), flow);
    default:
      return d.set(loadInto<uint64_t>(bytes), flow);
    }
  }
  if (space == Space::Const)
    d.fail("constant memory is not written");
  switch (d.i.width) {
  case 1:
    return d.set(storeFrom<uint8_t>(bytes));
  case 2:
    return d.set(storeFrom<uint16_t>(bytes));
  case 4:
    return d.set(storeFrom<uint32_t>(bytes));
  default:
    return d.set(storeFrom<uint64_t>(bytes));
  }
}

// ---- atomics: lanes one after the other

enum AtomicOp { And, Or, Xor, Exch, Cas, Add, Inc, Dec, Min, Max };

template <class T> T atomic(int op, T old, T b, T c) {
  switch (op) {
  case Exch:
    return b;
  case Cas:
    return old == b ? c : old;
  case Add:
    return T(old + b);
  case Inc:
    return old >= b ? T(0) : T(old + 1);
  case Dec:
    return old == 0 || old > b ? b : T(old - 1);
  case Min:
    return std::min(old, b);
  case Max:
    return std::max(old, b);
  }
  if constexpr (std::is_integral_v<T>)
    return op == And ? old & b : op == Or ? old | b : old ^ b;
  return old;
}

// op: d or None, b, c. selector: AtomicOp; selector2: Order.
template <class T> void atomics(Warp &w, const Instruction &i) {
  uint8_t *at[32];
  locate(w, i.at[0], sizeof(T), Access::Atomic, at);
  passOrder(w, i, /*replaces=*/false);
  forLanes(w.active, [&](int l) {
    T old;
    memcpy(&old, at[l], sizeof(T));
    T result = atomic<T>(i.selector, old, w.at<T>(i.op[1])[l], i.op[2] == None ? T() : w.at<T>(i.op[2])[l]);
    memcpy(at[l], &result, sizeof(T));
    if (i.op[0] != None)
      w.at<T>(i.op[0])[l] = old;
  });
}

void atom(Decoder &d) {
  bool red = d.s.opcode == "red";
  d.i.selector2 = orderOf(d);
  ignoreHints(d);
  d.ignore({"noftz"});
  Space space = spaceOf(d);
  int op = d.choose({"and", "or", "xor", "exch", "cas", "add", "inc", "dec", "min", "max"});
  Type t = d.type();
  size_t operands = (red ? 2 : 3) + (op == Cas ? 1 : 0);
  d.expect(operands, operands);
  d.i.selector = op;
  d.i.op = {red ? None : d.destination(0, t)};
  d.i.at[0] = d.address(d.s.operands[red ? 0 : 1], space);
  d.i.op.push_back(d.source(red ? 1 : 2, t));
  d.i.op.push_back(op == Cas ? d.source(red ? 2 : 3, t) : None);
  if (isFloat(t) && op != Add)
    d.fail("floating-point numbers can only be added");
  if (red && (op == Exch || op == Cas))
    d.fail("unknown operation");
  switch (t) {
  case Type::F32:
    return d.set(atomics<float>);
  case Type::F64:
    return d.set(atomics<double>);
  default:
    if (bytesOf(t) < 4 || isFloat(t))
      d.fail("no such type");
    return d.set(ofInteger(d, t, []<class T>() { return Handler(atomics<T>); }));
  }
}

// ---- cp.async: bytes are read when it is issued, and written when it is waited for

// at[0]: shared destination, at[1]: source; width: bytes. op: src-size or None, the predicate that ignores the source
// or None.
void copyAsync(Warp &w, const Instruction &i) {
  uint64_t to[32], from[32];
  addresses(w, i.at[0], to);
  addresses(w, i.at[1], from);
  uint32_t bytes = i.width;
  uint32_t ignored = i.op[1] == None ? 0 : *w.at<uint32_t>(i.op[1]) ^ (i.selector2 ? ~0u : 0);
  Counters &counters = w.block->cluster->counters;
  forLanes(w.active, [&](int l) {
    uint32_t size = ignored >> l & 1 ? 0 : i.op[0] == None ? bytes : w.at<uint32_t>(i.op[0])[l];
    if (size > bytes)
      w.fault(l, "cp.async with a source of " + std::to_string(size) + " bytes, more than the " +
                     std::to_string(bytes) + " copied");
    uint8_t *target = resolve(w, l, i.at[0].space, to[l], bytes, bytes, Access::Async);
    PendingCopy copy{uint8_t(l), uint8_t(bytes), w.copyGroup[size_t(l)], uint32_t(target - w.block->shared.get()), {}};
    if (from[l] % bytes)
      w.fault(l, "cp.async of " + std::to_string(bytes) + " bytes from an address that is no multiple of it");
    if (size)
      memcpy(copy.data.data(), resolve(w, l, Space::Global, from[l], size, 1, Access::Read), size);
    w.copies.push_back(copy);
    counters.globalRead += size;
    counters.sharedWritten += bytes;
  });
}

} // namespace

// Completes copies of the active lanes. under: how many of the latest groups may remain pending; -1: none, not even
// uncommitted ones.
void finishCopies(Warp &w, int under) {
  std::erase_if(w.copies, [&](const PendingCopy &copy) {
    uint32_t committed = w.copyGroup[copy.lane];
    bool due = under < 0 || copy.group + uint32_t(under) < committed;
    if (!(w.active >> copy.lane & 1) || !due)
      return false;
    memcpy(w.block->shared.get() + copy.to, copy.data.data(), copy.bytes);
    if (SharedShadow *shadow = w.block->cluster->shadow.get())
      shadow->copied(w, copy.lane, *w.block, copy.to, copy.bytes);
    return true;
  });
}

namespace {

void waitGroup(Warp &w, const Instruction &i) { finishCopies(w, i.selector); }

void copy(Decoder &d) {
  if (!d.take("async"))
    d.fail("only cp.async is known");
  if (d.take("bulk"))
    return decodeBulkCopy(d);
  if (d.take("mbarrier"))
    return decodeBarrierCopy(d);
  if (d.take("commit_group")) {
    d.expect(0, 0);
    return d.set([](Warp &w, const Instruction &) { forLanes(w.active, [&](int l) { ++w.copyGroup[size_t(l)]; }); });
  }
  if (d.take("wait_group")) {
    d.expect(1, 1);
    d.i.selector = int32_t(d.immediate(0));
    return d.set(waitGroup);
  }
  if (d.take("wait_all")) {
    d.expect(0, 0);
    d.i.selector = -1;
    return d.set(waitGroup);
  }
  bool all = d.choose({"ca", "cg"}) == 0;
  if (!d.take("shared") && !d.take("shared::cta"))
    d.fail("copies to .shared");
  if (!d.take("global"))
    d.fail("copies from .global");
  bool hint = d.take("L2::cache_hint");
  d.ignore({"L2::64B", "L2::128B", "L2::256B"});
  d.expect(3, hint ? 5 : 4);
  int64_t bytes = d.immediate(2);
  if (bytes != 16 && (!all || (bytes != 4 && bytes != 8)))
    d.fail("cannot copy " + std::to_string(bytes) + " bytes");
  d.i.width = uint8_t(bytes);
  d.i.at[0] = d.address(d.s.operands[0], Space::Shared);
  d.i.at[1] = d.address(d.s.operands[1], Space::Global);
  d.i.op = {None, None};
  size_t last = d.operands() - (hint ? 1 : 0);
  if (hint)
    d.source(last, Type::B64);
  if (last == 4) {
    const Operand &o = d.s.operands[3];
    bool predicate = o.kind == Operand::Kind::Register && o.type == Type::Pred;
    d.i.op[predicate ? 1 : 0] = d.source(o, predicate ? Type::Pred : Type::B32);
    d.i.selector2 = predicate && o.negated;
  }
  d.set(copyAsync);
}

// ---- instructions without effect: memory is coherent, and hints are ignored

void nothing(Warp &, const Instruction &) {}

// selector: 1 if it applies to mbarriers only.
void fenceProxies(Warp &w, const Instruction &i) {
  if (SharedShadow *shadow = w.block->cluster->shadow.get())
    shadow->fence(w, w.active, i.selector);
}

// Decodes fences. A proxy fence for shared memory has an effect, and so has fence.mbarrier_init, for mbarriers only.
// All others have none.
void fence(Decoder &d) {
  bool proxy = d.take("proxy"), async = d.take("async"), both = d.take("async::generic"),
       init = d.take("mbarrier_init");
  bool shared = !d.take("global");
  bool acquires = d.take("acquire"); // of writes by the async proxy
  bool counts = init || (proxy && shared && (async || (both && !acquires)));
  d.ignore({"sc", "acq_rel", "release", "relaxed", "cta", "cluster", "gpu", "sys", "gl", "alias", "shared::cta",
            "shared::cluster", "sync_restrict::shared::cta", "sync_restrict::shared::cluster", "tensormap::generic"});
  d.expect(0, 2);
  d.i.selector = init;
  d.set(counts ? fenceProxies : nothing);
}

// Has no effect, but the bytes must exist.
void fetchLine(Warp &w, const Instruction &i) {
  uint64_t address[32];
  addresses(w, i.at[0], address);
  std::string why;
  forLanes(w.active, [&](int l) {
    if (!w.block->cluster->launch.memory.find(address[l], 1, &why))
      w.fault(l, "prefetch of global memory out of bounds: " + why);
  });
}

void prefetch(Decoder &d) {
  const bool global = d.take("global");
  d.ignore({"local", "const", "param", "tensormap", "L1", "L2", "L2::evict_last", "L2::evict_normal"});
  d.expect(1, 1);
  if (!global)
    return d.set(nothing);
  d.i.at[0] = d.address(d.s.operands[0], Space::Global);
  d.set(fetchLine);
}

void createpolicy(Decoder &d) {
  d.ignore({"fractional", "L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"});
  if (d.type() != Type::B64)
    d.fail("gives b64");
  d.expect(1, 2);
  d.i.op = {d.destination(0, Type::B64)};
  d.set([](Warp &w, const Instruction &i) {
    uint64_t policy[32] = {};
    w.put(i.op[0], policy);
  });
}

} // namespace

void addMemory(Opcodes &o) {
  o["ld"] = o["st"] = access;
  o["atom"] = o["red"] = atom;
  o["cp"] = copy;
  o["fence"] = o["membar"] = fence;
  o["prefetch"] = o["prefetchu"] = prefetch;
  o["createpolicy"] = createpolicy;
}

} // namespace xfc::ptx
