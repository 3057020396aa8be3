// Decodes and executes cvt, mov and address conversions.
#include "Decoder.h"
#include "Numbers.h"
#include <algorithm>
#include <cfenv>
#include <cstring>

namespace xfc::ptx {
namespace {

int bitsOf(Type t) { return 8 * bytesOf(t); }

// The properties of a cvt, besides its registers.
struct Conversion {
  Type to, from;
  uint8_t toBytes, fromBytes; // bytes per register
  bool ftz, sat, relu, integral, rounds;
  Rounding mode;
};

float load16(Type t, uint16_t x) { return t == Type::F16 ? half(x) : bfloat(x); }
uint16_t store16(Type t, double x, Rounding mode) { return t == Type::F16 ? toHalf(x, mode) : toBFloat(x, mode); }

uint64_t loadRegister(Warp &w, uint32_t reg, int bytes, int l) {
  return bytes == 2 ? w.at<uint16_t>(reg)[l] : bytes == 4 ? w.at<uint32_t>(reg)[l] : w.at<uint64_t>(reg)[l];
}
uint64_t extend(uint64_t x, Type t) {
  int unused = 64 - bitsOf(t);
  return isSigned(t) ? uint64_t(int64_t(x << unused) >> unused) : x << unused >> unused;
}

// An integer as an f64 that a later rounding to a shorter format rounds correctly: split if f64 cannot hold it.
double integerToDouble(uint64_t x, bool isSignedValue) {
  double magnitude;
  bool negative = isSignedValue && int64_t(x) < 0;
  uint64_t m = negative ? 0 - x : x;
  magnitude = addOdd(double(m >> 32) * 0x1p32, double(m & 0xffffffff));
  return negative ? -magnitude : magnitude;
}

uint64_t convert(const Conversion &c, uint64_t raw) {
  double value = 0;
  if (isFloat(c.from)) {
    switch (c.from) {
    case Type::F32: {
      float f = asFloat(uint32_t(raw));
      value = c.ftz ? flush<true>(f) : f;
      break;
    }
    case Type::F64:
      value = std::bit_cast<double>(raw);
      break;
    default:
      value = load16(c.from, uint16_t(raw));
    }
  } else if (!isFloat(c.to)) {
    uint64_t x = extend(raw, c.from);
    if (c.sat) {
      __int128 wide = isSigned(c.from) ? __int128(int64_t(x)) : __int128(x), one = 1;
      __int128 least = isSigned(c.to) ? -(one << (bitsOf(c.to) - 1)) : 0;
      __int128 most = isSigned(c.to) ? (one << (bitsOf(c.to) - 1)) - 1 : (one << bitsOf(c.to)) - 1;
      x = uint64_t(std::clamp(wide, least, most));
    }
    return extend(x, c.to);
  } else {
    uint64_t x = extend(raw, c.from);
    value = c.to == Type::F64 && c.mode == Rounding::Nearest ? (isSigned(c.from) ? double(int64_t(x)) : double(x))
                                                             : integerToDouble(x, isSigned(c.from));
  }
  if (!isFloat(c.to)) {
    int n = bitsOf(c.to);
    if (value != value)
      return c.from != Type::F64 && n < 64 ? 0 : extend(uint64_t(1) << (n - 1), c.to);
    double r = roundToInteger(value, c.mode);
    double least = isSigned(c.to) ? -std::ldexp(1, n - 1) : 0, limit = std::ldexp(1, isSigned(c.to) ? n - 1 : n);
    if (r >= limit)
      return extend(isSigned(c.to) ? (uint64_t(1) << (n - 1)) - 1 : ~uint64_t(0), c.to);
    if (r <= least)
      return extend(isSigned(c.to) ? uint64_t(1) << (n - 1) : 0, c.to);
    return extend(r < 0 ? uint64_t(int64_t(r)) : uint64_t(r), c.to);
  }
  if (c.integral)
    value = roundToInteger(value, c.mode);
  if (c.sat)
    value = value >= 1 ? 1 : value > 0 ? value : 0;
  if (c.relu)
    value = value > 0 || value != value ? value : 0;
  switch (c.to) {
  case Type::F64:
    return std::bit_cast<uint64_t>(canonical(value));
  case Type::F32: {
    float f = canonical(toFloat(value, c.mode));
    return asBits(c.ftz ? flush<true>(f) : f);
  }
  case Type::TF32:
    return value != value ? NaN32 : asBits(float(roundTo(value, 10, -126, 128, c.mode)));
  default:
    return store16(c.to, value, c.mode);
  }
}

// The conversion is stored in the offsets of the instruction's addresses.
Conversion conversionOf(const Instruction &i) {
  Conversion c;
  static_assert(sizeof c <= sizeof i.at[0].offset + sizeof i.at[1].offset);
  int64_t words[2] = {i.at[0].offset, i.at[1].offset};
  memcpy(&c, words, sizeof c);
  return c;
}

void cvtLanes(Warp &w, const Instruction &i) {
  Conversion c = conversionOf(i);
  uint64_t result[32];
  for (int l = 0; l < 32; ++l)
    result[l] = convert(c, loadRegister(w, i.op[1], c.fromBytes, l));
  forLanes(w.active, [&](int l) {
    if (c.toBytes == 2)
      w.at<uint16_t>(i.op[0])[l] = uint16_t(result[l]);
    else if (c.toBytes == 4)
      w.at<uint32_t>(i.op[0])[l] = uint32_t(result[l]);
    else
      w.at<uint64_t>(i.op[0])[l] = result[l];
  });
}

// d = {a, b}, with a in the upper half.
void cvtPair(Warp &w, const Instruction &i) {
  Conversion c = conversionOf(i);
  c.to = c.to == Type::F16x2 ? Type::F16 : Type::BF16;
  uint32_t result[32];
  for (int l = 0; l < 32; ++l)
    result[l] = uint32_t(convert(c, w.at<uint32_t>(i.op[1])[l]) << 16 | convert(c, w.at<uint32_t>(i.op[2])[l]));
  w.put(i.op[0], result);
}

// Vectorized handlers for the conversions that are common in inner loops.
Handler quick(const Conversion &c) {
  if (c.toBytes != bytesOf(c.to) || c.fromBytes != bytesOf(c.from) || c.ftz || c.sat || c.relu)
    return nullptr;
  bool nearest = c.mode == Rounding::Nearest && !c.integral;
  auto is = [&](Type to, Type from) { return c.to == to && c.from == from; };
  if ((is(Type::U64, Type::U32) || is(Type::S64, Type::U32)))
    return onLanes<[](uint32_t a) { return uint64_t(a); }>;
  if (is(Type::S64, Type::S32) || is(Type::U64, Type::S32))
    return onLanes<[](int32_t a) { return int64_t(a); }>;
  if (bytesOf(c.to) == 4 && bytesOf(c.from) == 8 && !isFloat(c.to) && !isFloat(c.from))
    return onLanes<[](uint64_t a) { return uint32_t(a); }>;
  if (is(Type::F32, Type::S32) && nearest)
    return onLanes<[](int32_t a) { return float(a); }>;
  if (is(Type::F32, Type::BF16))
    return onLanes<[](uint16_t a) { return canonical(bfloat(a)); }>;
  if (is(Type::BF16, Type::F32) && nearest)
    return onLanes<[](float a) { return toBFloat(a); }>;
  return nullptr;
}

void cvt(Decoder &d) {
  Conversion c{};
  int integral = d.choose({"", "rni", "rzi", "rmi", "rpi"}, 0);
  int mode = d.choose({"", "rn", "rz", "rm", "rp", "rna"}, 0);
  c.ftz = d.take("ftz");
  c.sat = d.take("sat");
  c.relu = d.take("relu");
  c.to = d.type();
  c.from = d.type();
  c.integral = integral > 0;
  c.rounds = mode > 0;
  c.mode = integral ? Rounding(integral - 1) : mode ? Rounding(mode - 1) : Rounding::Nearest;
  bool pair = c.to == Type::F16x2 || c.to == Type::BF16x2;
  bool toFloat = isFloat(c.to), fromFloat = isFloat(c.from);
  if (c.to == Type::Pred || c.from == Type::Pred || c.from == Type::TF32 || c.from == Type::F16x2 ||
      c.from == Type::BF16x2)
    d.fail("no such conversion");
  if (c.ftz && c.to != Type::F32 && c.from != Type::F32)
    d.fail(".ftz needs an f32");
  // Check which kind of rounding modifier is required.
  bool narrows = toFloat && fromFloat && bytesOf(c.to) < bytesOf(c.from);
  bool sameSize = toFloat && fromFloat && c.to != c.from && bytesOf(c.to) == bytesOf(c.from);
  if (fromFloat && !toFloat && !integral)
    d.fail("to an integer needs .rni, .rzi, .rmi or .rpi");
  if (toFloat && (!fromFloat || narrows || pair || sameSize) && !mode)
    d.fail("needs a rounding");
  if (!toFloat && (mode || (!fromFloat && integral)))
    d.fail("has a rounding that it must not have");
  if (toFloat && fromFloat && bytesOf(c.to) > bytesOf(c.from) && mode)
    d.fail("has a rounding that it must not have");
  if (mode == 5 && c.to != Type::TF32)
    d.fail(".rna is for tf32");
  if (c.relu && !(c.from == Type::F32 && (bytesOf(c.to) == 2 || pair || c.to == Type::TF32)))
    d.fail("unknown modifier .relu");
  if (pair) {
    if (c.from != Type::F32)
      d.fail("two numbers are converted from f32");
    d.all(c.to, {c.from, c.from});
  } else {
    d.expect(2, 2);
    d.i.op = {d.destination(0, c.to, true), d.source(1, c.from, true)};
  }
  auto registerBytes = [&](const Operand &o, Type t) {
    return uint8_t(std::max(2, o.kind == Operand::Kind::Register  ? bytesOf(o.type)
                               : o.kind == Operand::Kind::Special ? 4
                                                                  : bytesOf(t)));
  };
  c.toBytes = registerBytes(d.s.operands[0], c.to);
  c.fromBytes = registerBytes(d.s.operands[1], c.from);
  int64_t words[2] = {};
  memcpy(words, &c, sizeof c);
  d.i.at[0].offset = words[0];
  d.i.at[1].offset = words[1];
  if (pair && c.to == Type::BF16x2 && c.mode == Rounding::Nearest && !c.relu && !c.ftz && !c.sat)
    return d.set(onLanes<[](float a, float b) { return uint32_t(toBFloat(a)) << 16 | toBFloat(b); }>);
  Handler h = pair ? nullptr : quick(c);
  d.set(h ? h : pair ? cvtPair : cvtLanes);
}

// ---- mov

template <class T> void copy(Warp &w, const Instruction &i) {
  alignas(64) T value[32];
  memcpy(value, w.at<T>(i.op[1]), sizeof value);
  w.put(i.op[0], value);
}
void copyPredicate(Warp &w, const Instruction &i) { w.putPredicate(i.op[0], *w.at<uint32_t>(i.op[1])); }

// width: bytes of the whole; count: number of parts. op[0]: the whole, then the parts.
void pack(Warp &w, const Instruction &i) {
  int part = i.width / i.count;
  alignas(64) uint8_t whole[32 * 8];
  for (int k = 0; k < i.count; ++k)
    for (int l = 0; l < 32; ++l)
      memcpy(whole + l * i.width + k * part, w.registers + i.op[size_t(k) + 1] + l * part, size_t(part));
  if (i.width == 4)
    w.put(i.op[0], reinterpret_cast<uint32_t *>(whole));
  else
    w.put(i.op[0], reinterpret_cast<uint64_t *>(whole));
}
void unpack(Warp &w, const Instruction &i) {
  int part = i.width / i.count;
  alignas(64) uint8_t whole[32 * 8];
  memcpy(whole, w.registers + i.op[0], size_t(32 * i.width));
  for (int k = 0; k < i.count; ++k)
    forLanes(w.active, [&](int l) {
      memcpy(w.registers + i.op[size_t(k) + 1] + l * part, whole + l * i.width + k * part, size_t(part));
    });
}

void mov(Decoder &d) {
  Type t = d.type();
  d.expect(2, 2);
  const Operand &to = d.s.operands[0], &from = d.s.operands[1];
  if (to.kind == Operand::Kind::Vector || from.kind == Operand::Kind::Vector) {
    bool packs = from.kind == Operand::Kind::Vector;
    const Operand &parts = packs ? from : to;
    int whole = bytesOf(t), count = int(parts.elements.size());
    if ((whole != 4 && whole != 8) || (count != 2 && count != 4) || whole / count < 2)
      d.fail("these parts do not make the whole");
    Type part = whole / count == 2 ? Type::B16 : Type::B32;
    d.i.width = uint8_t(whole);
    d.i.count = uint8_t(count);
    d.i.op = {packs ? d.destination(to, t) : d.source(from, t)};
    for (const Operand &o : parts.elements)
      d.i.op.push_back(packs ? d.source(o, part) : d.destination(o, part));
    return d.set(packs ? pack : unpack);
  }
  if (from.kind == Operand::Kind::Special &&
      (from.name == "%clock" || from.name == "%clock64" || from.name == "%globaltimer" || from.name == "%clock_hi")) {
    // A clock that counts instructions of this host thread: it advances, but its values must not be relied on.
    d.i.op = {d.destination(to, t)};
    bool wide = bytesOf(t) == 8;
    return d.set(wide ? Handler([](Warp &w, const Instruction &i) {
      uint64_t now[32];
      std::fill(now, now + 32, w.block->cluster->counters.lanes);
      w.put(i.op[0], now);
    })
                      : Handler([](Warp &w, const Instruction &i) {
                          uint32_t now[32];
                          std::fill(now, now + 32, uint32_t(w.block->cluster->counters.lanes));
                          w.put(i.op[0], now);
                        }));
  }
  d.i.op = {d.destination(to, t), d.source(from, t)};
  if (t == Type::Pred)
    return d.set(copyPredicate);
  switch (bytesOf(t)) {
  case 2:
    return d.set(copy<uint16_t>);
  case 4:
    return d.set(copy<uint32_t>);
  case 8:
    return d.set(copy<uint64_t>);
  default:
    d.fail("no such type");
  }
}

uint64_t windowOf(int space) {
  constexpr uint64_t windows[] = {0, 0, SharedWindow, LocalWindow, ParamWindow};
  return windows[space];
}

void cvta(Decoder &d) {
  bool to = d.take("to");
  if (d.take("shared::cta"))
    d.i.selector = 2;
  else
    d.i.selector = d.choose({"global", "const", "shared", "local", "param"});
  if (d.take("entry") && d.i.selector != 4)
    d.fail("unknown modifier .entry");
  Type t = d.type();
  if (t != Type::U64)
    d.fail("addresses have 64 bits");
  d.all(t, {t});
  d.i.at[0].offset = to ? 1 : 0;
  d.set([](Warp &w, const Instruction &i) {
    uint64_t window = windowOf(i.selector), result[32];
    const auto *from = w.at<uint64_t>(i.op[1]);
    for (int l = 0; l < 32; ++l)
      result[l] = window ? (i.at[0].offset ? from[l] & ~WindowMask : from[l] | window) : from[l];
    if (window && i.at[0].offset)
      forLanes(w.active, [&](int l) {
        if ((from[l] & WindowMask) != window)
          w.fault(l, "cvta.to of an address in another state space");
      });
    w.put(i.op[0], result);
  });
}

void isspacep(Decoder &d) {
  if (d.take("shared::cta"))
    d.i.selector = 2;
  else
    d.i.selector = d.choose({"global", "const", "shared", "local", "param"});
  d.expect(2, 2);
  d.i.op = {d.destination(0, Type::Pred), d.source(1, Type::B64)};
  d.set([](Warp &w, const Instruction &i) {
    uint64_t window = i.selector < 2 ? GlobalWindow : windowOf(i.selector);
    uint32_t mask = 0;
    for (int l = 0; l < 32; ++l)
      mask |= uint32_t((w.at<uint64_t>(i.op[1])[l] & WindowMask) == window) << l;
    w.putPredicate(i.op[0], mask);
  });
}

} // namespace

void addConversions(Opcodes &o) {
  o["cvt"] = cvt;
  o["mov"] = mov;
  o["cvta"] = cvta;
  o["isspacep"] = isspacep;
}

} // namespace xfc::ptx
