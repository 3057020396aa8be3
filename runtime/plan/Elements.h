// The types of the numbers in memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

namespace xfc {

// BF16 is for rows and for moments of optimizers, which are computed in F32. I8 is for rows of integers, which are
// multiplied by a scale where they are read.
enum class DType : uint8_t { F32, F64, I32, BF16, I8 };

struct ElementType {
  DType type;
  const char *name;      // in options and messages
  const char *inTensors; // in safetensors files
  int64_t bytes;         // of a number
};
// In the order of DType.
inline constexpr auto elementTypes = std::to_array<ElementType>({{DType::F32, "f32", "F32", 4},
                                                                 {DType::F64, "f64", "F64", 8},
                                                                 {DType::I32, "i32", "I32", 4},
                                                                 {DType::BF16, "bf16", "BF16", 2},
                                                                 {DType::I8, "int8", "I8", 1}});

constexpr const ElementType &elementTypeOf(DType type) { return elementTypes[static_cast<size_t>(type)]; }
constexpr int64_t bytesOf(DType type) { return elementTypeOf(type).bytes; }
constexpr const char *nameOf(DType type) { return elementTypeOf(type).name; }
// Whether it has fewer bits than F32, in which such numbers are computed.
constexpr bool isNarrow(DType type) { return bytesOf(type) < bytesOf(DType::F32); }

// The types in which values can be kept that are computed in F32.
inline std::vector<ElementType> narrowTypes() {
  std::vector<ElementType> narrow;
  std::ranges::copy_if(elementTypes, std::back_inserter(narrow), isNarrow, &ElementType::type);
  return narrow;
}

// The i-th of the numbers of this type from `data` on.
double numberAt(DType type, const void *data, int64_t i);
// Stores an f32, or a number of the type itself, as the i-th: rounded to nearest, ties to even. An I8 must
// not be beyond -128 .. 127.
void storeNumber(double number, DType type, void *data, int64_t i);

// How the bits of each type of floating-point numbers are read. In NaN and infinity all exponent bits are ones.
namespace number {
struct F32 {
  using Bits = uint32_t;
  static constexpr Bits exponent = 0x7F800000;
  static double number(Bits bits) { return std::bit_cast<float>(bits); }
};
struct F64 {
  using Bits = uint64_t;
  static constexpr Bits exponent = 0x7FF0000000000000;
  static double number(Bits bits) { return std::bit_cast<double>(bits); }
};
struct BF16 {
  using Bits = uint16_t;
  static constexpr Bits exponent = 0x7F80;
  static double number(Bits bits) { return F32::number(static_cast<uint32_t>(bits) << 16); }
  // The nearest number, the even one of two.
  static Bits rounded(float number) {
    const auto bits = std::bit_cast<uint32_t>(number);
    if (std::isnan(number)) // whose upper bits could become those of infinity or of another number
      return static_cast<Bits>(bits >> 16 | 0x40);
    return static_cast<Bits>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
};
struct F16 {
  using Bits = uint16_t;
  static constexpr Bits exponent = 0x7C00;
  static double number(Bits bits) {
    const int power = bits >> 10 & 31, fraction = bits & 1023;
    const double special =
        fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    const double value = power == 31  ? special
                         : power == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, power - 25);
    return bits & 0x8000 ? -value : value;
  }
  // The nearest number, the even one of two; infinity if it is too large.
  static Bits rounded(float number) {
    const int sign = std::signbit(number) ? 0x8000 : 0;
    if (!std::isfinite(number))
      return static_cast<Bits>(sign | exponent | (std::isnan(number) ? 0x200 : 0));
    const int power = std::max(number == 0 ? -14 : std::ilogb(number), -14);
    const double units =
        std::nearbyint(std::ldexp(std::abs(static_cast<double>(number)), 10 - power)); // of 2^(power-10)
    const double bits = std::min<double>((power + 14) * 1024.0 + units, exponent);
    return static_cast<Bits>(static_cast<int>(bits) | sign);
  }
};
} // namespace number

} // namespace xfc
