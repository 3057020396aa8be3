// What precedes a sentence of a document: when a model is trained, and when it translates.
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
