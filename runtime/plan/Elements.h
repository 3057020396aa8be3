// The types of the numbers in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xfc {

// BF16 is for rows and for moments of optimizers, which are computed in F32. I8 is for rows of integers, which are
// multiplied by a scale where they are read.
enum class DType : uint8_t { F32, F64, I32, BF16, I8 };

constexpr int64_t bytesOf(DType type) {
  constexpr int64_t bytes[] = {4, 8, 4, 2, 1};
  return bytes[static_cast<size_t>(type)];
}

// The i-th of the numbers of this type from `data` on.
double numberAt(DType type, const void *data, int64_t i);
// Stores an f32, or a number of the type itself, as the i-th: rounded to nearest, ties to even. An I8 must
// not be beyond -128 .. 127.
void storeNumber(double number, DType type, void *data, int64_t i);

} // namespace xfc
