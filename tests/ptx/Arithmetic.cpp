// Decodes and executes integer, bit, comparison and selection instructions.
#include "Decoder.h"
#include "Numbers.h"
#include <algorithm>

namespace xfc::ptx {
namespace {

template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T> constexpr int bits = 8 * sizeof(T);
template <class T> struct Wider;
template <> struct Wider<uint16_t> {
  using type = uint32_t;
};
template <> struct Wider<uint32_t> {
  using type = uint64_t;
};
template <> struct Wider<int16_t> {
  using type = int32_t;
};
template <> struct Wider<int32_t> {
  using type = int64_t;
};
template <> struct Wider<uint64_t> {
  using type = unsigned __int128;
};
template <> struct Wider<int64_t> {
  using type = __int128;
};
template <class T> using Wide = typename Wider<T>::type;

template <class T> T wrapAdd(T a, T b) { return T(Unsigned<T>(a) + Unsigned<T>(b)); }
template <class T> T wrapSub(T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); }
template <class T> T wrapMul(T a, T b) { return T(uint64_t(a) * uint64_t(b)); }
template <class T> T high(T a, T b) { return T((Wide<T>(a) * Wide<T>(b)) >> bits<T>); }

} // namespace

void decodeFloatArithmetic(Decoder &d, Type type); // Float.cpp

namespace {

// add and sub; .sat of s32 clamps.
void addSub(Decoder &d) {
  Type t = d.type();
  if (isFloat(t))
    return decodeFloatArithmetic(d, t);
  bool sub = d.s.opcode == "sub";
  d.all(t, {t, t});
  if (d.take("sat")) {
    if (t != Type::S32)
      d.fail(".sat is for s32");
    d.set(sub ? onLanes<[](int32_t a, int32_t b) {
      return int32_t(std::clamp<int64_t>(int64_t(a) - b, INT32_MIN, INT32_MAX));
    }>
              : onLanes<[](int32_t a, int32_t b) {
                  return int32_t(std::clamp<int64_t>(int64_t(a) + b, INT32_MIN, INT32_MAX));
                }>);
    return;
  }
  d.set(ofInteger(d, t, [&]<class T>() {
    return sub ? onLanes<[](T a, T b) -> T { return wrapSub(a, b); }>
               : onLanes<[](T a, T b) -> T { return wrapAdd(a, b); }>;
  }));
}

Type doubled(Decoder &d, Type t) {
  switch (t) {
  case Type::U16:
    return Type::U32;
  case Type::S16:
    return Type::S32;
  case Type::U32:
    return Type::U64;
  case Type::S32:
    return Type::S64;
  default:
    d.fail("no type for .wide");
  }
}

void mul(Decoder &d) {
  Type t = d.type();
  if (isFloat(t))
    return decodeFloatArithmetic(d, t);
  int part = d.choose({"lo", "hi", "wide"});
  d.all(part == 2 ? doubled(d, t) : t, {t, t});
  if (part == 2) {
    switch (t) {
    case Type::U16:
      return d.set(onLanes<[](uint16_t a, uint16_t b) { return uint32_t(a) * b; }>);
    case Type::S16:
      return d.set(onLanes<[](int16_t a, int16_t b) { return int32_t(a) * b; }>);
    case Type::U32:
      return d.set(onLanes<[](uint32_t a, uint32_t b) { return uint64_t(a) * b; }>);
    default:
      return d.set(onLanes<[](int32_t a, int32_t b) { return int64_t(a) * b; }>);
    }
  }
  d.set(ofInteger(d, t, [&]<class T>() {
    return part ? onLanes<[](T a, T b) -> T { return high(a, b); }>
                : onLanes<[](T a, T b) -> T { return wrapMul(a, b); }>;
  }));
}

void mad(Decoder &d) {
  Type t = d.type();
  if (isFloat(t))
    return decodeFloatArithmetic(d, t);
  int part = d.choose({"lo", "hi", "wide"});
  Type to = part == 2 ? doubled(d, t) : t;
  d.all(to, {t, t, to});
  if (part == 2) {
    switch (t) {
    case Type::U16:
      return d.set(onLanes<[](uint16_t a, uint16_t b, uint32_t c) { return uint32_t(a) * b + c; }>);
    case Type::S16:
      return d.set(onLanes<[](int16_t a, int16_t b, int32_t c) { return wrapAdd(int32_t(a) * b, c); }>);
    case Type::U32:
      return d.set(onLanes<[](uint32_t a, uint32_t b, uint64_t c) { return uint64_t(a) * b + c; }>);
    default:
      return d.set(onLanes<[](int32_t a, int32_t b, int64_t c) { return wrapAdd(int64_t(a) * b, c); }>);
    }
  }
  d.set(ofInteger(d, t, [&]<class T>() {
    return part ? onLanes<[](T a, T b, T c) -> T { return wrapAdd(high(a, b), c); }>
                : onLanes<[](T a, T b, T c) -> T { return wrapAdd(wrapMul(a, b), c); }>;
  }));
}

void divRem(Decoder &d) {
  Type t = d.type();
  if (isFloat(t))
    return decodeFloatArithmetic(d, t);
  bool rem = d.s.opcode == "rem";
  d.all(t, {t, t});
  // The ISA leaves division by zero undefined; GPUs give all ones.
  d.set(ofInteger(d, t, [&]<class T>() {
    return rem ? onLanes<[](T a, T b) -> T { return b == 0                              ? a
                                                    : std::is_signed_v<T> && b == T(-1) ? T(0)
                                                                                        : T(a % b); }>
               : onLanes<[](T a, T b) -> T {
                   return b == 0 ? T(-1) : std::is_signed_v<T> && b == T(-1) ? wrapSub(T(0), a) : T(a / b);
                 }>;
  }));
}

void minMax(Decoder &d) {
  Type t = d.type();
  if (isFloat(t))
    return decodeFloatArithmetic(d, t);
  bool isMax = d.s.opcode == "max";
  bool relu = d.take("relu");
  if (relu && t != Type::S32)
    d.fail(".relu is supported for s32 only");
  d.all(t, {t, t});
  if (relu) {
    d.set(isMax ? onLanes<[](int32_t a, int32_t b) -> int32_t { return std::max({a, b, 0}); }>
                : onLanes<[](int32_t a, int32_t b) -> int32_t { return std::max(std::min(a, b), 0); }>);
    return;
  }
  d.set(ofInteger(d, t, [&]<class T>() {
    return isMax ? onLanes<[](T a, T b) -> T { return std::max(a, b); }>
                 : onLanes<[](T a, T b) -> T { return std::min(a, b); }>;
  }));
}

void negAbs(Decoder &d) {
  Type t = d.type();
  if (isFloat(t))
    return decodeFloatArithmetic(d, t);
  if (!isSigned(t))
    d.fail("needs a signed type");
  bool abs = d.s.opcode == "abs";
  d.all(t, {t});
  d.set(ofInteger(d, t, [&]<class T>() {
    return abs ? onLanes<[](T a) -> T { return a < 0 ? wrapSub(T(0), a) : a; }>
               : onLanes<[](T a) -> T { return wrapSub(T(0), a); }>;
  }));
}

void sad(Decoder &d) {
  Type t = d.type();
  d.all(t, {t, t, t});
  d.set(ofInteger(d, t, [&]<class T>() {
    return onLanes<[](T a, T b, T c) -> T { return wrapAdd(c, a < b ? wrapSub(b, a) : wrapSub(a, b)); }>;
  }));
}

// ---- bits

template <class F> void logic(Decoder &d, F ofType, Handler ofPredicates, size_t sources) {
  Type t = d.type();
  if (t == Type::Pred) {
    d.expect(sources + 1, sources + 1);
    d.i.op.push_back(d.destination(0, t));
    for (size_t n = 1; n <= sources; ++n) {
      d.i.op.push_back(d.source(n, t));
      d.i.selector |= d.s.operands[n].negated ? 1 << n : 0;
    }
    return d.set(ofPredicates);
  }
  if (sources == 2)
    d.all(t, {t, t});
  else
    d.all(t, {t});
  d.set(ofInteger(d, t, ofType));
}

template <auto F> void onPredicates(Warp &w, const Instruction &i) {
  uint32_t a = *w.at<uint32_t>(i.op[1]) ^ (i.selector & 2 ? ~0u : 0);
  uint32_t b = i.op.size() > 2 ? *w.at<uint32_t>(i.op[2]) ^ (i.selector & 4 ? ~0u : 0) : 0;
  w.putPredicate(i.op[0], F(a, b));
}

void bitAnd(Decoder &d) {
  logic(
      d, []<class T>() { return onLanes<[](T a, T b) -> T { return a & b; }>; },
      onPredicates<[](uint32_t a, uint32_t b) { return a & b; }>, 2);
}
void bitOr(Decoder &d) {
  logic(
      d, []<class T>() { return onLanes<[](T a, T b) -> T { return a | b; }>; },
      onPredicates<[](uint32_t a, uint32_t b) { return a | b; }>, 2);
}
void bitXor(Decoder &d) {
  logic(
      d, []<class T>() { return onLanes<[](T a, T b) -> T { return a ^ b; }>; },
      onPredicates<[](uint32_t a, uint32_t b) { return a ^ b; }>, 2);
}
void bitNot(Decoder &d) {
  logic(
      d, []<class T>() { return onLanes<[](T a) -> T { return T(~a); }>; },
      onPredicates<[](uint32_t a, uint32_t) { return ~a; }>, 1);
}
void logicalNot(Decoder &d) {
  Type t = d.type();
  d.all(t, {t});
  d.set(ofInteger(d, t, []<class T>() { return onLanes<[](T a) -> T { return a == 0; }>; }));
}

// Shifts clamp: shifting by the width or more gives zeros, or copies of the sign.
void shl(Decoder &d) {
  Type t = d.type();
  d.all(t, {t, Type::B32});
  d.set(ofInteger(d, t, []<class T>() {
    return onLanes<[](T a, uint32_t n) -> T { return n >= bits<T> ? T(0) : T(Unsigned<T>(a) << n); }>;
  }));
}
void shr(Decoder &d) {
  Type t = d.type();
  d.all(t, {t, Type::B32});
  d.set(ofInteger(d, t, []<class T>() {
    return onLanes<[](T a, uint32_t n) -> T {
      return n >= bits<T> ? T(std::is_signed_v<T> && a < 0 ? -1 : 0) : T(a >> n);
    }>;
  }));
}

// Funnel shift of the pair b:a.
void shf(Decoder &d) {
  bool right = d.choose({"l", "r"}), wrap = d.choose({"clamp", "wrap"});
  if (bytesOf(d.type()) != 4)
    d.fail("is for b32");
  d.all(Type::B32, {Type::B32, Type::B32, Type::B32});
  using U = uint32_t;
  if (right)
    d.set(wrap ? onLanes<[](U a, U b, U n) { return U((uint64_t(b) << 32 | a) >> (n & 31)); }>
               : onLanes<[](U a, U b, U n) { return U((uint64_t(b) << 32 | a) >> std::min<U>(n, 32)); }>);
  else
    d.set(wrap ? onLanes<[](U a, U b, U n) { return U((uint64_t(b) << 32 | a) << (n & 31) >> 32); }>
               : onLanes<[](U a, U b, U n) { return n >= 32 ? a : U((uint64_t(b) << 32 | a) << n >> 32); }>);
}

void lop3(Decoder &d) {
  if (d.type() != Type::B32)
    d.fail("is for b32");
  d.expect(5, 5);
  d.i.op = {d.destination(0, Type::B32), d.source(1, Type::B32), d.source(2, Type::B32), d.source(3, Type::B32)};
  d.i.selector = int32_t(d.immediate(4) & 0xff);
  d.set([](Warp &w, const Instruction &i) {
    const auto *a = w.at<uint32_t>(i.op[1]), *b = w.at<uint32_t>(i.op[2]), *c = w.at<uint32_t>(i.op[3]);
    uint32_t result[32];
    for (int l = 0; l < 32; ++l) {
      uint32_t r = 0;
      for (int k = 0; k < 8; ++k)
        if (i.selector >> k & 1)
          r |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
      result[l] = r;
    }
    w.put(i.op[0], result);
  });
}

uint32_t permute(uint32_t a, uint32_t b, uint32_t selector, int mode) {
  uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    uint32_t s = selector >> (4 * k) & 15, low = selector & 3, pick = 0;
    switch (mode) {
    case 0:
      pick = s & 7;
      break;
    case 1: // f4e: forward 4 extract
      pick = low + k;
      break;
    case 2: // b4e
      pick = (low + 8 - k) & 7;
      break;
    case 3: // rc8: replicate 8
      pick = low;
      break;
    case 4: // ecl: edge clamp left
      pick = std::max(low, k);
      break;
    case 5: // ecr
      pick = std::min(low, k);
      break;
    case 6: // rc16
      pick = (low & 1) * 2 + (k & 1);
      break;
    }
    uint32_t byte = uint32_t(bytes >> (8 * pick)) & 0xff;
    if (mode == 0 && s & 8)
      byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * k);
  }
  return result;
}

void prmt(Decoder &d) {
  if (d.type() != Type::B32)
    d.fail("is for b32");
  d.i.selector = d.choose({"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}, 0);
  d.all(Type::B32, {Type::B32, Type::B32, Type::B32});
  d.set([](Warp &w, const Instruction &i) {
    uint32_t result[32];
    for (int l = 0; l < 32; ++l)
      result[l] =
          permute(w.at<uint32_t>(i.op[1])[l], w.at<uint32_t>(i.op[2])[l], w.at<uint32_t>(i.op[3])[l], i.selector);
    w.put(i.op[0], result);
  });
}

template <class T> T extract(T a, uint32_t position, uint32_t length) {
  position &= 0xff, length &= 0xff;
  if (!length)
    return 0;
  bool negative = std::is_signed_v<T> && (a >> std::min<uint32_t>(position + length - 1, bits<T> - 1) & 1);
  Unsigned<T> value = position < bits<T> ? Unsigned<T>(a) >> position : 0;
  if (position >= bits<T>)
    return negative ? T(-1) : T(0);
  uint32_t valid = std::min<uint32_t>(length, bits<T> - position);
  Unsigned<T> mask = valid >= bits<T> ? Unsigned<T>(-1) : (Unsigned<T>(1) << valid) - 1;
  return T(negative ? value | ~mask : value & mask);
}

template <class T> T insert(T a, T b, uint32_t position, uint32_t length) {
  position &= 0xff, length &= 0xff;
  if (position >= bits<T> || !length)
    return b;
  uint32_t valid = std::min<uint32_t>(length, bits<T> - position);
  Unsigned<T> mask = (valid >= bits<T> ? Unsigned<T>(-1) : (Unsigned<T>(1) << valid) - 1) << position;
  return T((Unsigned<T>(b) & ~mask) | (Unsigned<T>(a) << position & mask));
}

void bfe(Decoder &d) {
  Type t = d.type();
  if (bytesOf(t) < 4)
    d.fail("is for 32 and 64 bits");
  d.all(t, {t, Type::B32, Type::B32});
  d.set(ofInteger(
      d, t, []<class T>() { return onLanes<[](T a, uint32_t p, uint32_t n) -> T { return extract(a, p, n); }>; }));
}
void bfi(Decoder &d) {
  Type t = d.type();
  if (bytesOf(t) < 4)
    d.fail("is for 32 and 64 bits");
  d.all(t, {t, t, Type::B32, Type::B32});
  d.set(ofInteger(d, t, []<class T>() {
    return onLanes<[](T a, T b, uint32_t p, uint32_t n) -> T { return insert(a, b, p, n); }>;
  }));
}
void bmsk(Decoder &d) {
  bool wrap = d.choose({"clamp", "wrap"});
  d.type();
  d.all(Type::B32, {Type::B32, Type::B32});
  using U = uint32_t;
  d.set(wrap ? onLanes<[](U p, U n) { return U(((uint64_t(1) << (n & 31)) - 1) << (p & 31)); }>
             : onLanes<[](U p, U n) { return p >= 32 ? 0 : U(((uint64_t(1) << std::min<U>(n, 32)) - 1) << p); }>);
}

template <class F32, class F64> void count(Decoder &d, F32 narrow, F64 wide) {
  Type t = d.type();
  if (bytesOf(t) < 4)
    d.fail("is for 32 and 64 bits");
  d.all(Type::B32, {t});
  d.set(bytesOf(t) == 4 ? narrow() : wide());
}
void popc(Decoder &d) {
  count(
      d, [] { return onLanes<[](uint32_t a) { return uint32_t(std::popcount(a)); }>; },
      [] { return onLanes<[](uint64_t a) { return uint32_t(std::popcount(a)); }>; });
}
void clz(Decoder &d) {
  count(
      d, [] { return onLanes<[](uint32_t a) { return uint32_t(std::countl_zero(a)); }>; },
      [] { return onLanes<[](uint64_t a) { return uint32_t(std::countl_zero(a)); }>; });
}
template <class T> uint32_t leading(T a, bool shift) {
  using U = Unsigned<T>;
  U u = std::is_signed_v<T> && a < 0 ? U(~U(a)) : U(a);
  if (!u)
    return ~0u;
  auto at = uint32_t(bits<T> - 1 - std::countl_zero(u));
  return shift ? bits<T> - 1 - at : at;
}
void bfind(Decoder &d) {
  bool shift = d.take("shiftamt");
  Type t = d.type();
  d.all(Type::B32, {t});
  d.set(ofInteger(d, t, [&]<class T>() {
    return shift ? onLanes<[](T a) { return leading(a, true); }> : onLanes<[](T a) { return leading(a, false); }>;
  }));
}
template <class T> T reverse(T a) {
  T r = 0;
  for (int k = 0; k < bits<T>; ++k)
    r |= T(a >> k & 1) << (bits<T> - 1 - k);
  return r;
}
void brev(Decoder &d) {
  Type t = d.type();
  d.all(t, {t});
  d.set(bytesOf(t) == 4 ? onLanes<[](uint32_t a) { return reverse(a); }>
                        : onLanes<[](uint64_t a) { return reverse(a); }>);
}

void dp4a(Decoder &d) {
  Type a = d.type(), b = d.type();
  bool signedA = isSigned(a), signedB = isSigned(b);
  d.all(Type::B32, {Type::B32, Type::B32, Type::B32});
  d.i.selector = signedA;
  d.i.selector2 = signedB;
  d.set([](Warp &w, const Instruction &i) {
    uint32_t result[32];
    for (int l = 0; l < 32; ++l) {
      uint32_t x = w.at<uint32_t>(i.op[1])[l], y = w.at<uint32_t>(i.op[2])[l], sum = w.at<uint32_t>(i.op[3])[l];
      for (int k = 0; k < 32; k += 8) {
        int32_t p = i.selector ? int8_t(x >> k) : uint8_t(x >> k), q = i.selector2 ? int8_t(y >> k) : uint8_t(y >> k);
        sum += uint32_t(p * q);
      }
      result[l] = sum;
    }
    w.put(i.op[0], result);
  });
}

// ---- comparison and selection

enum Compare { Eq, Ne, Lt, Le, Gt, Ge, Lo, Ls, Hi, Hs, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, IsNan };

template <int C, class T> bool compare(T a, T b) {
  bool unordered = false;
  if constexpr (std::is_floating_point_v<T>)
    unordered = a != a || b != b;
  switch (C) {
  case Eq:
    return a == b;
  case Ne:
    return a != b && !unordered;
  case Lt:
  case Lo:
    return a < b;
  case Le:
  case Ls:
    return a <= b;
  case Gt:
  case Hi:
    return a > b;
  case Ge:
  case Hs:
    return a >= b;
  case Equ:
    return a == b || unordered;
  case Neu:
    return a != b || unordered;
  case Ltu:
    return a < b || unordered;
  case Leu:
    return a <= b || unordered;
  case Gtu:
    return a > b || unordered;
  case Geu:
    return a >= b || unordered;
  case Num:
    return !unordered;
  default:
    return unordered;
  }
}

template <int C, class T, bool Ftz> uint32_t compareLanes(Warp &w, const T *a, const T *b) {
  uint32_t mask = 0;
  for (int l = 0; l < 32; ++l) {
    if constexpr (Ftz)
      mask |= uint32_t(compare<C, T>(flush<true>(a[l]), flush<true>(b[l]))) << l;
    else
      mask |= uint32_t(compare<C, T>(a[l], b[l])) << l;
  }
  return mask;
}
template <int C> uint32_t compareHalves(Warp &w, const Instruction &i) {
  const auto *a = w.at<uint16_t>(i.op[2]), *b = w.at<uint16_t>(i.op[3]);
  bool brain = i.width == uint8_t(Type::BF16);
  uint32_t mask = 0;
  for (int l = 0; l < 32; ++l)
    mask |= uint32_t(compare<C, float>(brain ? bfloat(a[l]) : half(a[l]), brain ? bfloat(b[l]) : half(b[l]))) << l;
  return mask;
}

// op: p, q, a, b, c. selector: 0 none, 1 and, 2 or, 3 xor; selector2: c is negated.
void combine(Warp &w, const Instruction &i, uint32_t mask) {
  uint32_t other = ~mask;
  if (i.selector) {
    uint32_t c = *w.at<uint32_t>(i.op[4]) ^ (i.selector2 ? ~0u : 0);
    mask = i.selector == 1 ? mask & c : i.selector == 2 ? mask | c : mask ^ c;
    other = i.selector == 1 ? other & c : i.selector == 2 ? other | c : other ^ c;
  }
  w.putPredicate(i.op[0], mask);
  if (i.op[1] != None)
    w.putPredicate(i.op[1], other);
}

template <int C, class T, bool Ftz = false> void setpLanes(Warp &w, const Instruction &i) {
  combine(w, i, compareLanes<C, T, Ftz>(w, w.at<T>(i.op[2]), w.at<T>(i.op[3])));
}
// set: all ones (1.0 if selector2), or zero.
template <int C, class T, bool Ftz = false> void setLanes(Warp &w, const Instruction &i) {
  uint32_t mask = compareLanes<C, T, Ftz>(w, w.at<T>(i.op[1]), w.at<T>(i.op[2]));
  uint32_t result[32];
  for (int l = 0; l < 32; ++l)
    result[l] = mask >> l & 1 ? (i.selector2 ? 0x3f800000 : ~0u) : 0;
  w.put(i.op[0], result);
}

template <int C> Handler comparison(Decoder &d, Type t, bool ftz, bool set) {
  constexpr bool unsignedOnly = C >= Lo && C <= Hs, floatOnly = C >= Equ, equality = C <= Ne;
  auto of = [&]<class T>() -> Handler { return set ? setLanes<C, T> : setpLanes<C, T>; };
  if (t == Type::F32) {
    if constexpr (!unsignedOnly)
      return ftz ? (set ? setLanes<C, float, true> : setpLanes<C, float, true>) : of.template operator()<float>();
  } else if (t == Type::F64) {
    if constexpr (!unsignedOnly)
      return of.template operator()<double>();
  } else if (t == Type::F16 || t == Type::BF16) {
    if constexpr (!unsignedOnly)
      if (!set) {
        d.i.width = uint8_t(t);
        return [](Warp &w, const Instruction &i) { combine(w, i, compareHalves<C>(w, i)); };
      }
  } else if (!floatOnly && (equality || (t != Type::B16 && t != Type::B32 && t != Type::B64)) &&
             !(unsignedOnly && isSigned(t))) {
    return ofInteger(d, t, of);
  }
  d.fail("no such comparison of this type");
}

Handler comparison(Decoder &d, int c, Type t, bool ftz, bool set) {
  return [&]<int... C>(std::integer_sequence<int, C...>) {
    Handler h = nullptr;
    ((C == c ? void(h = comparison<C>(d, t, ftz, set)) : void()), ...);
    return h;
  }(std::make_integer_sequence<int, 18>());
}

int chooseComparison(Decoder &d) {
  return d.choose({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
                   "num", "nan"});
}

void setp(Decoder &d) {
  int c = chooseComparison(d);
  d.i.selector = d.choose({"", "and", "or", "xor"}, 0);
  bool ftz = d.take("ftz");
  Type t = d.type();
  d.expect(d.i.selector ? 4 : 3, d.i.selector ? 4 : 3);
  const Operand &to = d.s.operands[0];
  bool pair = to.kind == Operand::Kind::Tuple;
  d.i.op = {d.destination(pair ? to.elements.at(0) : to, Type::Pred),
            pair ? d.destination(to.elements.at(1), Type::Pred) : None, d.source(1, t), d.source(2, t)};
  if (d.i.selector) {
    d.i.op.push_back(d.source(3, Type::Pred));
    d.i.selector2 = d.s.operands[3].negated;
  }
  d.set(comparison(d, c, t, ftz, false));
}

void set(Decoder &d) {
  int c = chooseComparison(d);
  bool ftz = d.take("ftz");
  Type to = d.type(), t = d.type();
  if (bytesOf(to) != 4)
    d.fail("gives 32 bits");
  d.i.selector2 = to == Type::F32;
  d.all(to, {t, t});
  d.set(comparison(d, c, t, ftz, true));
}

template <class T> void select(Warp &w, const Instruction &i) {
  uint32_t p = *w.at<uint32_t>(i.op[3]) ^ (i.selector ? ~0u : 0);
  const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]);
  T result[32];
  for (int l = 0; l < 32; ++l)
    result[l] = p >> l & 1 ? a[l] : b[l];
  w.put(i.op[0], result);
}
void selp(Decoder &d) {
  Type t = d.type();
  d.all(t, {t, t, Type::Pred});
  d.i.selector = d.s.operands[3].negated;
  switch (bytesOf(t)) {
  case 2:
    return d.set(select<uint16_t>);
  case 4:
    return d.set(select<uint32_t>);
  case 8:
    return d.set(select<uint64_t>);
  default:
    d.fail("no such type");
  }
}
void slct(Decoder &d) {
  bool ftz = d.take("ftz");
  Type t = d.type(), by = d.type();
  (void)ftz; // -0 and denormals are >= 0 either way
  if (bytesOf(t) != 4 || (by != Type::S32 && by != Type::F32))
    d.fail("is for 32 bits by s32 or f32");
  d.all(t, {t, t, by});
  d.set(by == Type::S32 ? onLanes<[](uint32_t a, uint32_t b, int32_t c) { return c >= 0 ? a : b; }>
                        : onLanes<[](uint32_t a, uint32_t b, float c) { return flush<true>(c) >= 0 ? a : b; }>);
}

} // namespace

void addArithmetic(Opcodes &o) {
  for (const char *name : {"rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh", "copysign", "testp"})
    o[name] = [](Decoder &d) { decodeFloatArithmetic(d, d.type()); };
  o["add"] = o["sub"] = addSub;
  o["mul"] = mul;
  o["mad"] = o["fma"] = mad;
  o["div"] = o["rem"] = divRem;
  o["min"] = o["max"] = minMax;
  o["neg"] = o["abs"] = negAbs;
  o["sad"] = sad;
  o["and"] = bitAnd;
  o["or"] = bitOr;
  o["xor"] = bitXor;
  o["not"] = bitNot;
  o["cnot"] = logicalNot;
  o["shl"] = shl;
  o["shr"] = shr;
  o["shf"] = shf;
  o["lop3"] = lop3;
  o["prmt"] = prmt;
  o["bfe"] = bfe;
  o["bfi"] = bfi;
  o["bmsk"] = bmsk;
  o["popc"] = popc;
  o["clz"] = clz;
  o["bfind"] = bfind;
  o["brev"] = brev;
  o["dp4a"] = dp4a;
  o["setp"] = setp;
  o["set"] = set;
  o["selp"] = selp;
  o["slct"] = slct;
}

} // namespace xfc::ptx
