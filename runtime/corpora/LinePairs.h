// Reads two parallel files, one pair of lines at a time.
#pragma once

#include "support/LineReader.h"

namespace xfc {

// The length at which lines of text are truncated. No model takes a sentence this long.
constexpr size_t longestLine = 1 << 20;
// The size of a window of lines that are processed together, in lines and in bytes (approximately): large enough for
// full batches, small enough for endless streams.
constexpr size_t windowLines = 8192, windowBytes = 8 << 20;

class LinePairs {
public:
  // `rule` tells, in the error message for unequal line counts, what was expected.
  LinePairs(const std::string &first, const std::string &second, std::string rule)
      : first(first, longestLine), second(second, longestLine), rule(std::move(rule)) {}
  // Reads the next two lines; false after the last. Throws Error if a file is unreadable or invalid UTF-8, or if one
  // file ends before the other.
  bool next(std::string &one, std::string &other);

  LineReader first, second;

private:
  std::string rule;
};

} // namespace xfc
