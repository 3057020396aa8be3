// Rounding up to a multiple.
#pragma once

#include <cstdint>

namespace xfc {

// The least multiple of `step`, which is positive, that is at least `value`, which is not negative.
constexpr int64_t roundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

} // namespace xfc
