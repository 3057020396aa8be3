// Constraints by their definition, for comparison: tries every way of placing phrases without common tokens.
#pragma once

#include "decode/Constraints.h"
#include <algorithm>
#include <span>
#include <vector>

namespace xfc {

// Whether the constraints from number `first` on have phrases in `ids` that share no token with each other and with
// what is taken. Tokens from `free` on are not forced: the phrases' tokens there must not be `forbidden`.
inline bool canBePlaced(std::span<const Constraint> constraints, std::span<const int32_t> ids, std::vector<bool> &taken,
                        size_t free, std::span<const int32_t> forbidden) {
  if (constraints.empty())
    return true;
  for (const std::vector<int32_t> &phrase : constraints.front())
    for (size_t at = 0; at + phrase.size() <= ids.size(); ++at) {
      bool fits = true;
      for (size_t i = 0; i < phrase.size(); ++i)
        fits &= ids[at + i] == phrase[i] && !taken[at + i] &&
                (at + i < free || std::ranges::find(forbidden, phrase[i]) == forbidden.end());
      if (!fits)
        continue;
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(at), phrase.size(), true);
      const bool placed = canBePlaced(constraints.subspan(1), ids, taken, free, forbidden);
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(at), phrase.size(), false);
      if (placed)
        return true;
    }
  return false;
}

inline bool meets(std::span<const int32_t> ids, std::span<const Constraint> constraints) {
  std::vector<bool> taken(ids.size());
  return canBePlaced(constraints, ids, taken, ids.size(), {});
}

// The fewest of `tokens` that have to follow, if no more than `most` are enough; otherwise most + 1.
inline int64_t neededAfter(const std::vector<int32_t> &ids, std::span<const Constraint> constraints,
                           std::span<const int32_t> tokens, int64_t most, std::span<const int32_t> forbidden = {}) {
  std::vector<std::vector<int32_t>> level = {ids};
  for (int64_t count = 0; count <= most; ++count) {
    std::vector<std::vector<int32_t>> next;
    for (const std::vector<int32_t> &one : level) {
      std::vector<bool> taken(one.size());
      if (canBePlaced(constraints, one, taken, ids.size(), forbidden))
        return count;
      for (int32_t token : tokens) {
        next.push_back(one);
        next.back().push_back(token);
      }
    }
    level = std::move(next);
  }
  return most + 1;
}

} // namespace xfc
