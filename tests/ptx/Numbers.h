// The number formats of PTX and rounding between them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace xfc::ptx {

enum class Rounding : uint8_t { Nearest, Zero, Down, Up, Away }; // .rn .rz .rm .rp .rna

constexpr uint32_t NaN32 = 0x7fffffff; // the NaN that f32 instructions produce
constexpr uint16_t NaN16 = 0x7fff;
constexpr uint64_t NaN64 = 0x7ff8000000000000;

inline float asFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t asBits(float value) { return std::bit_cast<uint32_t>(value); }
inline float canonical(float x) { return x == x ? x : asFloat(NaN32); }
inline double canonical(double x) { return x == x ? x : std::bit_cast<double>(NaN64); }
// Flushes denormals to zeros of the same sign.
template <bool Ftz> inline float flush(float x) {
  if constexpr (!Ftz)
    return x;
  uint32_t b = asBits(x);
  return asFloat(b & 0x7f800000 ? b : b & 0x80000000);
}

inline double roundToInteger(double x, Rounding mode) {
  switch (mode) {
  case Rounding::Nearest:
    return std::nearbyint(x);
  case Rounding::Zero:
    return std::trunc(x);
  case Rounding::Down:
    return std::floor(x);
  case Rounding::Up:
    return std::ceil(x);
  default:
    return std::round(x);
  }
}

// The value nearest to x according to `mode`, with `mantissa` bits after the point and no exponent below `least`
// (denormals). Values of 2^most and above become infinite or the largest finite value, depending on the mode.
inline double roundTo(double x, int mantissa, int least, int most, Rounding mode) {
  if (x == 0 || !std::isfinite(x))
    return x;
  int exponent = std::max(std::ilogb(x), least) - mantissa;
  double result = std::ldexp(roundToInteger(std::ldexp(x, -exponent), mode), exponent);
  if (std::fabs(result) < std::ldexp(1, most))
    return result;
  bool infinite = mode == Rounding::Nearest || mode == Rounding::Away || (mode == Rounding::Up && x > 0) ||
                  (mode == Rounding::Down && x < 0);
  double largest = std::ldexp(2 - std::ldexp(1, -mantissa), most - 1);
  return std::copysign(infinite ? std::numeric_limits<double>::infinity() : largest, x);
}

// a + b, rounded to odd: a later rounding to a shorter format then gives the correctly rounded exact sum.
inline double addOdd(double a, double b) {
  double sum = a + b;
  double partner = sum - a, error = (a - (sum - partner)) + (b - partner);
  if (error == 0 || !std::isfinite(sum) || (std::bit_cast<uint64_t>(sum) & 1))
    return sum;
  return std::nextafter(sum,
                        error > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
}

inline float bfloat(uint16_t bits) { return asFloat(uint32_t(bits) << 16); }
// Converts f32 to bf16, rounding to nearest even; a NaN becomes NaN16.
inline uint16_t toBFloat(float x) {
  uint32_t b = asBits(x);
  uint32_t rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16;
  return (b & 0x7fffffff) > 0x7f800000 ? NaN16 : uint16_t(rounded);
}
inline uint16_t toBFloat(double x, Rounding mode) {
  if (x != x)
    return NaN16;
  return uint16_t(asBits(float(roundTo(x, 7, -126, 128, mode))) >> 16);
}

inline float half(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00)
    return asFloat(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x400)
    return asFloat(sign | ((magnitude << 13) + 0x38000000));
  return std::copysign(float(magnitude) * 0x1p-24f, asFloat(sign | 0x3f800000));
}
inline uint16_t toHalf(double x, Rounding mode = Rounding::Nearest) {
  if (x != x)
    return NaN16;
  uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  double r = std::fabs(roundTo(x, 10, -14, 16, mode));
  if (std::isinf(r))
    return sign | 0x7c00;
  if (r < 0x1p-14)
    return uint16_t(sign | uint16_t(r * 0x1p24));
  int exponent = std::ilogb(r);
  return uint16_t(sign | uint16_t((exponent + 15) << 10) | uint16_t(std::ldexp(r, 10 - exponent) - 1024));
}

inline float toFloat(double x, Rounding mode) {
  return mode == Rounding::Nearest ? float(x) : float(roundTo(x, 23, -126, 128, mode));
}

// The value that tensor cores read from a tf32 register: 10 mantissa bits; the rest is ignored.
inline float tf32(uint32_t bits) { return asFloat(bits & 0xffffe000); }

} // namespace xfc::ptx
