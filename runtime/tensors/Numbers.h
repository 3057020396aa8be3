// Reads the numbers that tensors hold, whatever their type, and splits tensors into parts for several threads.
#pragma once

#include "device/ThreadPool.h"
#include "plan/Plan.h"
#include "tensors/Safetensors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace xfc {

// How the bits of each type are read. In NaN and infinity all exponent bits are ones.
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
  static double number(Bits bits) { // for finite numbers only
    const int power = bits >> 10 & 31, fraction = bits & 1023;
    const double value = power == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, power - 25);
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

// Calls use(type) with the tensor's type, one of those above. Weights have only these types: returns false for others.
template <typename Use> bool withType(const TensorView &tensor, Use use) {
  if (tensor.type == "F32")
    use(number::F32());
  else if (tensor.type == "F64")
    use(number::F64());
  else if (tensor.type == "F16")
    use(number::F16());
  else if (tensor.type == "BF16")
    use(number::BF16());
  else
    return false;
  return true;
}

// Calls use(i, number) for the numbers from `begin` to before `end`, which must be finite.
template <typename Use> void eachNumber(const TensorView &tensor, int64_t begin, int64_t end, Use use) {
  withType(tensor, [&]<typename Type>(Type) {
    for (int64_t i = begin; i < end; ++i) {
      typename Type::Bits bits;
      std::memcpy(&bits, tensor.bytes.data() + i * sizeof bits, sizeof bits);
      use(i, Type::number(bits));
    }
  });
}

// Calls body(0) ... body(parts - 1), on all threads of the pool if there is one.
template <typename Body> void onThreads(ThreadPool *pool, int64_t parts, Body body) {
  if (pool)
    pool->run([](void *context, int64_t part, int) { (*static_cast<Body *>(context))(part); }, &body, parts);
  else
    for (int64_t part = 0; part < parts; ++part)
      body(part);
}

// Calls body(tensor index, begin, end) for ranges of at most 2^18 elements that together cover the tensors.
template <typename Body> void inParts(ThreadPool *pool, const std::vector<const TensorView *> &tensors, Body body) {
  struct Part {
    size_t tensor;
    int64_t begin, end;
  };
  constexpr int64_t most = 1 << 18;
  std::vector<Part> parts;
  for (size_t i = 0; i < tensors.size(); ++i)
    for (int64_t begin = 0, count = elementsOf(tensors[i]->shape); begin < count; begin += most)
      parts.push_back({i, begin, std::min(begin + most, count)});
  onThreads(pool, static_cast<int64_t>(parts.size()),
            [&](int64_t part) { body(parts[part].tensor, parts[part].begin, parts[part].end); });
}

} // namespace xfc
