// How many sentences of a document precede each of its sentences, both in training and in translation.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

struct ContextOptions {
  int64_t sentences = 0;       // before it; 0: none
  std::string separator = " "; // after each of them
  bool operator==(const ContextOptions &) const = default;
};
inline constexpr int64_t mostContext = 100;

} // namespace xfc
