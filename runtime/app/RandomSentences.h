// Sentences that checks are made with.
#pragma once

#include "plan/Plan.h"
#include <cstdint>
#include <vector>

namespace xfc {

using Ids = std::vector<int32_t>;

struct Sentences {
  std::vector<Ids> sources, targets; // targets without start and eos
};

// At least `least` sentences, and so many that they have `tokens` target tokens, of 1 to `longest` tokens each, the
// first with a pad inside.
Sentences randomSentences(const Module &module, uint64_t seed, int64_t longest = 8, int64_t tokens = 0,
                          int64_t least = 5);

} // namespace xfc
