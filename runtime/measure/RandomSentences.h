// Random sentences for checks.
#pragma once

#include "plan/Plan.h"
#include <cstdint>
#include <vector>

namespace xfc {

using Ids = std::vector<int32_t>;

struct Sentences {
  std::vector<Ids> sources, targets; // targets without start and eos
};

// Makes at least `least` pairs, and enough to have `tokens` target tokens in total. Sentences have 1 to `longest`
// tokens; the first source contains a pad if it has more than two.
Sentences randomSentences(const Module &module, uint64_t seed, int64_t longest = 8, int64_t tokens = 0,
                          int64_t least = 5);

} // namespace xfc
