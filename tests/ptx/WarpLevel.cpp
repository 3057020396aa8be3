// Executes what the lanes of a warp do together: shuffles, votes, reductions; and barriers.
#include "Decoder.h"
#include "Shadow.h"
#include <algorithm>

namespace xfc::ptx {

void barrier(Warp &w, const Instruction &i); // Execution.cpp
void clusterBarrier(Warp &w, const Instruction &i);

namespace {

// Checks that exactly the named lanes are active.
void together(Warp &w, uint32_t maskRegister) {
  forLanes(w.active, [&](int l) {
    uint32_t named = w.at<uint32_t>(maskRegister)[l];
    if ((named & w.alive) != w.active) {
      auto hex = [](uint32_t x) {
        char text[16];
        snprintf(text, sizeof text, "0x%08x", x);
        return std::string(text);
      };
      w.fault(l, "divergent: lanes " + hex(named) + " are named and lanes " + hex(w.active) + " are here");
    }
  });
}

// op: d, p or None, a, b, c, mask. selector: up down bfly idx.
void shuffle(Warp &w, const Instruction &i) {
  together(w, i.op[5]);
  const auto *a = w.at<uint32_t>(i.op[2]), *b = w.at<uint32_t>(i.op[3]), *c = w.at<uint32_t>(i.op[4]);
  uint32_t result[32] = {}, inRange = 0;
  forLanes(w.active, [&](int lane) {
    int by = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
    int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int from = i.selector == 0   ? lane - by
               : i.selector == 1 ? lane + by
               : i.selector == 2 ? lane ^ by
                                 : least | (by & ~segment);
    bool in = i.selector == 0 ? from >= most : from <= most;
    if (!in)
      from = lane;
    if (!(w.active >> from & 1))
      w.fault(lane, "shfl reads lane " + std::to_string(from) + ", which is not here");
    result[lane] = a[from];
    inRange |= uint32_t(in) << lane;
  });
  w.put(i.op[0], result);
  if (i.op[1] != None)
    w.putPredicate(i.op[1], inRange);
}

// d or d|p
std::pair<uint32_t, uint32_t> pairOf(Decoder &d, Type t) {
  const Operand &to = d.s.operands.at(0);
  if (to.kind != Operand::Kind::Tuple)
    return {d.destination(to, t), None};
  return {d.destination(to.elements.at(0), t), d.destination(to.elements.at(1), Type::Pred)};
}

void needSync(Decoder &d) {
  if (!d.take("sync"))
    d.fail("lacks .sync");
}

void shfl(Decoder &d) {
  needSync(d);
  d.i.selector = d.choose({"up", "down", "bfly", "idx"});
  if (d.type() != Type::B32)
    d.fail("is for b32");
  d.expect(5, 5);
  auto [to, p] = pairOf(d, Type::B32);
  d.i.op = {to, p};
  for (size_t n = 1; n < 5; ++n)
    d.i.op.push_back(d.source(n, Type::B32));
  d.set(shuffle);
}

// op: d, a, mask. selector: all any uni ballot.
void vote(Decoder &d) {
  needSync(d);
  d.i.selector = d.choose({"all", "any", "uni", "ballot"});
  Type t = d.type();
  if (t != (d.i.selector == 3 ? Type::B32 : Type::Pred))
    d.fail("has another type");
  d.expect(3, 3);
  d.i.op = {d.destination(0, t), d.source(1, Type::Pred), d.source(2, Type::B32)};
  d.i.selector2 = d.s.operands[1].negated;
  d.set([](Warp &w, const Instruction &i) {
    together(w, i.op[2]);
    uint32_t p = (*w.at<uint32_t>(i.op[1]) ^ (i.selector2 ? ~0u : 0)) & w.active;
    if (i.selector == 3) {
      uint32_t ballot[32];
      std::fill(ballot, ballot + 32, p);
      return w.put(i.op[0], ballot);
    }
    bool all = p == w.active, any = p != 0;
    w.putPredicate(i.op[0], (i.selector == 0 ? all : i.selector == 1 ? any : all || !any) ? ~0u : 0);
  });
}

template <class T> void matchLanes(Warp &w, const Instruction &i) {
  together(w, i.op[3]);
  const T *a = w.at<T>(i.op[2]);
  uint32_t result[32] = {};
  bool all = false;
  forLanes(w.active, [&](int l) { forLanes(w.active, [&](int m) { result[l] |= uint32_t(a[l] == a[m]) << m; }); });
  forLanes(w.active, [&](int l) { all |= result[l] == w.active; });
  if (i.selector)
    std::fill(result, result + 32, all ? w.active : 0);
  w.put(i.op[0], result);
  if (i.op[1] != None)
    w.putPredicate(i.op[1], all ? ~0u : 0);
}
void match(Decoder &d) {
  needSync(d);
  d.i.selector = d.choose({"any", "all"});
  Type t = d.type();
  if (t != Type::B32 && t != Type::B64)
    d.fail("is for b32 and b64");
  d.expect(3, 3);
  auto [to, p] = pairOf(d, Type::B32);
  d.i.op = {to, p, d.source(1, t), d.source(2, Type::B32)};
  d.set(t == Type::B32 ? matchLanes<uint32_t> : matchLanes<uint64_t>);
}

template <class T> void reduce(Warp &w, const Instruction &i) {
  together(w, i.op[2]);
  const T *a = w.at<T>(i.op[1]);
  T r = a[std::countr_zero(w.active)];
  forLanes(w.active & (w.active - 1), [&](int l) {
    switch (i.selector) {
    case 0:
      r = T(uint32_t(r) + uint32_t(a[l]));
      break;
    case 1:
      r = std::min(r, a[l]);
      break;
    case 2:
      r = std::max(r, a[l]);
      break;
    case 3:
      r &= a[l];
      break;
    case 4:
      r |= a[l];
      break;
    default:
      r ^= a[l];
    }
  });
  T result[32];
  std::fill(result, result + 32, r);
  w.put(i.op[0], result);
}
void redux(Decoder &d) {
  needSync(d);
  d.i.selector = d.choose({"add", "min", "max", "and", "or", "xor"});
  Type t = d.type();
  if (bytesOf(t) != 4 || isFloat(t))
    d.fail("is for 32-bit integers");
  d.all(t, {t, Type::B32});
  d.set(t == Type::S32 ? reduce<int32_t> : reduce<uint32_t>);
}

void activemask(Decoder &d) {
  d.type();
  d.expect(1, 1);
  d.i.op = {d.destination(0, Type::B32)};
  d.set([](Warp &w, const Instruction &i) {
    uint32_t result[32];
    std::fill(result, result + 32, w.active);
    w.put(i.op[0], result);
  });
}

// elect: the lowest named lane is chosen.
void elect(Decoder &d) {
  needSync(d);
  d.expect(2, 2);
  auto [to, p] = pairOf(d, Type::B32);
  d.i.op = {to, p, d.source(1, Type::B32)};
  d.set([](Warp &w, const Instruction &i) {
    together(w, i.op[2]);
    uint32_t leader[32];
    std::fill(leader, leader + 32, uint32_t(std::countr_zero(w.active)));
    w.put(i.op[0], leader);
    if (i.op[1] != None)
      w.putPredicate(i.op[1], w.active & -w.active);
  });
}

// ---- barriers

void bar(Decoder &d) {
  if (d.take("warp")) {
    needSync(d);
    d.expect(1, 1);
    d.i.op = {d.source(0, Type::B32)};
    return d.set([](Warp &w, const Instruction &i) {
      together(w, i.op[0]);
      if (SharedShadow *shadow = w.block->cluster->shadow.get())
        shadow->order(w);
    });
  }
  d.ignore({"cta"});
  bool isBar = d.s.opcode == "bar";
  if (d.s.opcode == "barrier" && d.take("cluster")) {
    d.i.selector = d.choose({"arrive", "wait"});
    d.ignore({"release", "relaxed", "acquire", "aligned"});
    d.expect(0, 0);
    return d.set(clusterBarrier, Flow::Wait);
  }
  int what = d.choose({"sync", "arrive", "red"});
  bool aligned = d.take("aligned") || isBar;
  d.i.selector2 = aligned;
  d.i.op = {None, None, None, None};
  if (what == 2) {
    int op = d.choose({"popc", "and", "or"});
    Type t = d.type();
    if (t != (op == 0 ? Type::U32 : Type::Pred))
      d.fail("has another type");
    d.expect(3, 4);
    d.i.selector = 2 + op;
    d.i.op[3] = d.destination(0, t);
    d.i.op[0] = d.source(1, Type::B32);
    if (d.operands() == 4)
      d.i.op[1] = d.source(2, Type::B32);
    d.i.op[2] = d.source(d.operands() - 1, Type::Pred);
    d.i.width = d.s.operands.back().negated;
  } else {
    d.expect(what == 1 ? 2 : 1, 2);
    d.i.selector = what;
    d.i.op[0] = d.source(0, Type::B32);
    if (d.operands() == 2)
      d.i.op[1] = d.source(1, Type::B32);
  }
  d.set(barrier, Flow::Wait);
}

// mapa: maps an address in the block's own shared memory to the corresponding address in another block of the cluster.
void mapa(Decoder &d) {
  if (!d.take("shared::cluster"))
    d.fail("is supported for .shared::cluster");
  Type t = d.type();
  d.all(t, {t, Type::U32});
  if (bytesOf(t) < 4)
    d.fail("no such type");
  d.set(ofInteger(d, t, []<class T>() {
    return onLanes<[](T a, uint32_t rank) -> T { return T((a & 0xffffff) | T(rank + 1) << 24); }>;
  }));
}

void nothing(Warp &, const Instruction &) {}

void nanosleep(Decoder &d) {
  d.type();
  d.expect(1, 1);
  d.source(0, Type::U32);
  d.set([](Warp &w, const Instruction &) { w.yielded = true; }, Flow::Wait);
}
void setmaxnreg(Decoder &d) {
  d.choose({"inc", "dec"});
  needSync(d);
  d.ignore({"aligned"});
  d.type();
  d.expect(1, 1);
  d.immediate(0);
  d.set(nothing);
}
void griddepcontrol(Decoder &d) {
  d.choose({"launch_dependents", "wait"});
  d.expect(0, 0);
  d.set(nothing);
}

} // namespace

void addWarp(Opcodes &o) {
  o["shfl"] = shfl;
  o["vote"] = vote;
  o["match"] = match;
  o["redux"] = redux;
  o["activemask"] = activemask;
  o["elect"] = elect;
  o["mapa"] = mapa;
  o["bar"] = o["barrier"] = bar;
  o["nanosleep"] = nanosleep;
  o["setmaxnreg"] = setmaxnreg;
  o["griddepcontrol"] = griddepcontrol;
}

} // namespace xfc::ptx
