// Executes floating-point arithmetic of f32, f64 and the 16-bit formats.
#include "Decoder.h"
#include "Numbers.h"
#include <cmath>

namespace xfc::ptx {
namespace {

Rounding roundingOf(Decoder &d, bool needed) {
  int mode = d.choose({"rn", "rz", "rm", "rp"}, needed ? -1 : 0);
  return Rounding(mode);
}

// ---- f32 with any rounding, .ftz and .sat: computed in f64, exactly or rounded to odd, then rounded once

template <bool Ftz> float finish(const Instruction &i, double exact) {
  float r = canonical(flush<Ftz>(toFloat(exact, Rounding(i.selector))));
  if (i.selector2)
    r = r >= 1 ? 1 : r > 0 ? r : 0;
  return r;
}
template <bool Ftz, int Op> void general(Warp &w, const Instruction &i) {
  float result[32];
  for (int l = 0; l < 32; ++l) {
    double x = flush<Ftz>(w.at<float>(i.op[1])[l]), y = flush<Ftz>(w.at<float>(i.op[2])[l]);
    double z = Op == 3 ? flush<Ftz>(w.at<float>(i.op[3])[l]) : 0;
    double exact = Op == 0   ? addOdd(x, y)
                   : Op == 1 ? addOdd(x, -y)
                   : Op == 2 ? x * y
                   : Op == 3 ? addOdd(x * y, z)
                             : x / y;
    result[l] = finish<Ftz>(i, exact);
  }
  w.put(i.op[0], result);
}

template <bool Ftz> Handler single(int op) {
  switch (op) {
  case 0:
    return onLanes<[](float a, float b) { return canonical(flush<Ftz>(flush<Ftz>(a) + flush<Ftz>(b))); }>;
  case 1:
    return onLanes<[](float a, float b) { return canonical(flush<Ftz>(flush<Ftz>(a) - flush<Ftz>(b))); }>;
  case 2:
    return onLanes<[](float a, float b) { return canonical(flush<Ftz>(flush<Ftz>(a) * flush<Ftz>(b))); }>;
  case 3:
    return onLanes<[](float a, float b, float c) {
      return canonical(flush<Ftz>(__builtin_fmaf(flush<Ftz>(a), flush<Ftz>(b), flush<Ftz>(c))));
    }>;
  default:
    return onLanes<[](float a, float b) { return canonical(flush<Ftz>(flush<Ftz>(a) / flush<Ftz>(b))); }>;
  }
}
template <bool Ftz> Handler anyRounding(int op) {
  switch (op) {
  case 0:
    return general<Ftz, 0>;
  case 1:
    return general<Ftz, 1>;
  case 2:
    return general<Ftz, 2>;
  case 3:
    return general<Ftz, 3>;
  default:
    return general<Ftz, 4>;
  }
}

Handler doubles(int op) {
  switch (op) {
  case 0:
    return onLanes<[](double a, double b) { return canonical(a + b); }>;
  case 1:
    return onLanes<[](double a, double b) { return canonical(a - b); }>;
  case 2:
    return onLanes<[](double a, double b) { return canonical(a * b); }>;
  case 3:
    return onLanes<[](double a, double b, double c) { return canonical(__builtin_fma(a, b, c)); }>;
  default:
    return onLanes<[](double a, double b) { return canonical(a / b); }>;
  }
}

// ---- 16-bit formats, alone and in pairs

struct Half {
  static float load(uint16_t x) { return half(x); }
  static uint16_t store(double x) { return toHalf(x); }
};
struct Brain {
  static float load(uint16_t x) { return bfloat(x); }
  static uint16_t store(double x) { return toBFloat(x, Rounding::Nearest); }
};

using Of16 = double (*)(float, float, float);

template <class Format> void in16(Warp &w, const Instruction &i, Of16 f) {
  int each = i.width; // elements per register
  uint16_t result[64];
  auto from = [&](size_t k) { return w.at<uint16_t>(i.op[std::min(k, i.op.size() - 1)]); };
  const uint16_t *a = from(1), *b = from(2), *c = from(3);
  for (int e = 0; e < 32 * each; ++e)
    result[e] = Format::store(f(Format::load(a[e]), Format::load(b[e]), Format::load(c[e])));
  if (each == 1)
    w.put(i.op[0], result);
  else
    w.put(i.op[0], reinterpret_cast<uint32_t *>(result));
}

double minimum(float a, float b) {
  if (a != a || b != b)
    return a != a ? b : a;
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
double maximum(float a, float b) {
  if (a != a || b != b)
    return a != a ? b : a;
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}

template <auto F> Handler onHalves(Type t) {
  if (t == Type::F16 || t == Type::F16x2)
    return [](Warp &w, const Instruction &i) { in16<Half>(w, i, F); };
  return [](Warp &w, const Instruction &i) { in16<Brain>(w, i, F); };
}

Handler halves(Decoder &d, Type t, const std::string &op, bool nan) {
  d.i.width = bytesOf(t) / 2;
  if (op == "add")
    return onHalves<[](float a, float b, float) { return addOdd(a, b); }>(t);
  if (op == "sub")
    return onHalves<[](float a, float b, float) { return addOdd(a, -double(b)); }>(t);
  if (op == "mul")
    return onHalves<[](float a, float b, float) { return double(a) * b; }>(t);
  if (op == "fma")
    return onHalves<[](float a, float b, float c) { return addOdd(double(a) * b, c); }>(t);
  if (op == "min")
    return nan ? onHalves<[](float a, float b, float) -> double { return a != a || b != b ? NAN : minimum(a, b); }>(t)
               : onHalves<[](float a, float b, float) { return minimum(a, b); }>(t);
  if (op == "max")
    return nan ? onHalves<[](float a, float b, float) -> double { return a != a || b != b ? NAN : maximum(a, b); }>(t)
               : onHalves<[](float a, float b, float) { return maximum(a, b); }>(t);
  if (op == "ex2")
    return onHalves<[](float a, float, float) { return std::exp2(double(a)); }>(t);
  if (op == "tanh")
    return onHalves<[](float a, float, float) { return std::tanh(double(a)); }>(t);
  d.fail("has no 16-bit form here");
}

// ---- functions of one number

template <bool Ftz> Handler function(const std::string &op) {
  if (op == "rcp")
    return onLanes<[](float a) { return canonical(flush<Ftz>(float(1 / double(flush<Ftz>(a))))); }>;
  if (op == "sqrt")
    return onLanes<[](float a) { return canonical(flush<Ftz>(std::sqrt(flush<Ftz>(a)))); }>;
  if (op == "rsqrt")
    return onLanes<[](float a) { return canonical(flush<Ftz>(float(1 / std::sqrt(double(flush<Ftz>(a)))))); }>;
  if (op == "sin")
    return onLanes<[](float a) { return canonical(flush<Ftz>(float(std::sin(double(flush<Ftz>(a)))))); }>;
  if (op == "cos")
    return onLanes<[](float a) { return canonical(flush<Ftz>(float(std::cos(double(flush<Ftz>(a)))))); }>;
  if (op == "lg2")
    return onLanes<[](float a) { return canonical(flush<Ftz>(float(std::log2(double(flush<Ftz>(a)))))); }>;
  if (op == "ex2")
    return onLanes<[](float a) { return canonical(flush<Ftz>(float(std::exp2(double(flush<Ftz>(a)))))); }>;
  return onLanes<[](float a) { return canonical(float(std::tanh(double(a)))); }>;
}

void functionOfOne(Decoder &d, Type t) {
  const std::string &op = d.s.opcode;
  bool ftz = d.take("ftz"), approx = d.take("approx");
  if (!approx) {
    if (op != "rcp" && op != "sqrt")
      d.fail("lacks .approx");
    if (roundingOf(d, true) != Rounding::Nearest)
      d.fail("only .rn is supported");
  }
  d.all(t, {t});
  if (t == Type::F64) {
    if (op == "rcp")
      return d.set(onLanes<[](double a) { return canonical(1 / a); }>);
    if (op == "sqrt")
      return d.set(onLanes<[](double a) { return canonical(std::sqrt(a)); }>);
    if (op == "rsqrt")
      return d.set(onLanes<[](double a) { return canonical(1 / std::sqrt(a)); }>);
    d.fail("has no f64 form");
  }
  if (t != Type::F32)
    return d.set(halves(d, t, op, false));
  if (op == "tanh" && ftz)
    d.fail("unknown modifier .ftz");
  d.set(ftz ? function<true>(op) : function<false>(op));
}

// -0 is less than +0; if one operand is NaN the result is the other one, unless .NaN.
template <bool Ftz, bool Nan, bool Max> float extreme(float a, float b) {
  a = flush<Ftz>(a), b = flush<Ftz>(b);
  bool first = Max ? a > b : a < b, second = Max ? b > a : b < a;
  float r = first ? a : second ? b : asFloat(Max ? asBits(a) & asBits(b) : asBits(a) | asBits(b));
  r = a != a ? b : b != b ? a : r;
  return canonical(Nan && (a != a || b != b) ? asFloat(NaN32) : r);
}
template <bool Ftz, bool Nan> Handler minMax(bool isMax) {
  return isMax ? onLanes<extreme<Ftz, Nan, true>> : onLanes<extreme<Ftz, Nan, false>>;
}

template <bool Ftz> Handler sign(bool abs) {
  return abs ? onLanes<[](float a) { return flush<Ftz>(asFloat(asBits(a) & 0x7fffffff)); }>
             : onLanes<[](float a) { return flush<Ftz>(asFloat(asBits(a) ^ 0x80000000)); }>;
}

void signs(Decoder &d, Type t, bool abs) {
  bool ftz = d.take("ftz");
  d.all(t, {t});
  switch (t) {
  case Type::F32:
    return d.set(ftz ? sign<true>(abs) : sign<false>(abs));
  case Type::F64:
    return d.set(abs ? onLanes<[](uint64_t a) { return a & ~(uint64_t(1) << 63); }>
                     : onLanes<[](uint64_t a) { return a ^ uint64_t(1) << 63; }>);
  case Type::F16:
  case Type::BF16:
    return d.set(abs ? onLanes<[](uint16_t a) { return uint16_t(a & 0x7fff); }>
                     : onLanes<[](uint16_t a) { return uint16_t(a ^ 0x8000); }>);
  default:
    return d.set(abs ? onLanes<[](uint32_t a) { return a & 0x7fff7fff; }>
                     : onLanes<[](uint32_t a) { return a ^ 0x80008000; }>);
  }
}

void testp(Decoder &d, Type t) {
  int what = d.choose({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  if (t != Type::F32)
    d.fail("is supported for f32");
  d.expect(2, 2);
  d.i.op = {d.destination(0, Type::Pred), d.source(1, t)};
  d.i.selector = what;
  d.set([](Warp &w, const Instruction &i) {
    uint32_t mask = 0;
    for (int l = 0; l < 32; ++l) {
      int c = std::fpclassify(w.at<float>(i.op[1])[l]);
      bool holds[] = {c != FP_INFINITE && c != FP_NAN,
                      c == FP_INFINITE,
                      c != FP_NAN,
                      c == FP_NAN,
                      c == FP_NORMAL,
                      c == FP_SUBNORMAL};
      mask |= uint32_t(holds[i.selector]) << l;
    }
    w.putPredicate(i.op[0], mask);
  });
}

} // namespace

// Decodes all of an instruction except its type.
void decodeFloatArithmetic(Decoder &d, Type t) {
  const std::string &op = d.s.opcode;
  if (op == "neg" || op == "abs")
    return signs(d, t, op == "abs");
  if (op == "testp")
    return testp(d, t);
  if (op == "copysign") {
    if (t != Type::F32)
      d.fail("is supported for f32");
    d.all(t, {t, t});
    return d.set(onLanes<[](uint32_t a, uint32_t b) { return (b & 0x7fffffff) | (a & 0x80000000); }>);
  }
  if (op == "min" || op == "max") {
    bool ftz = d.take("ftz"), nan = d.take("NaN"), isMax = op == "max";
    d.all(t, {t, t});
    if (t == Type::F32)
      return d.set(ftz ? (nan ? minMax<true, true>(isMax) : minMax<true, false>(isMax))
                       : (nan ? minMax<false, true>(isMax) : minMax<false, false>(isMax)));
    if (t == Type::F64 && !nan)
      return d.set(isMax ? onLanes<[](double a, double b) { return canonical(std::fmax(a, b)); }>
                         : onLanes<[](double a, double b) { return canonical(std::fmin(a, b)); }>);
    return d.set(halves(d, t, op, nan));
  }
  int arithmetic = op == "add"                  ? 0
                   : op == "sub"                ? 1
                   : op == "mul"                ? 2
                   : op == "fma" || op == "mad" ? 3
                   : op == "div"                ? 4
                                                : -1;
  if (arithmetic < 0) {
    if (op == "rem")
      d.fail("is for integers");
    return functionOfOne(d, t);
  }
  if (t == Type::TF32)
    d.fail("no such type");
  bool ftz = d.take("ftz"), sat = d.take("sat");
  bool approx = arithmetic == 4 && t == Type::F32 && (d.take("approx") || d.take("full"));
  bool small = t != Type::F32 && t != Type::F64;
  Rounding mode = approx ? Rounding::Nearest : roundingOf(d, arithmetic >= 3);
  if (arithmetic == 3)
    d.all(t, {t, t, t});
  else
    d.all(t, {t, t});
  if (small || t == Type::F64) {
    if (sat || mode != Rounding::Nearest || (ftz && t == Type::F64))
      d.fail("this rounding, .sat or .ftz is supported for f32 only");
    if (ftz)
      d.fail(".ftz is supported for f32 only");
    return d.set(small ? halves(d, t, op == "mad" ? "fma" : op, false) : doubles(arithmetic));
  }
  d.i.selector = int32_t(mode);
  d.i.selector2 = sat;
  if (sat || mode != Rounding::Nearest)
    d.set(ftz ? anyRounding<true>(arithmetic) : anyRounding<false>(arithmetic));
  else
    d.set(ftz ? single<true>(arithmetic) : single<false>(arithmetic));
}

} // namespace xfc::ptx
