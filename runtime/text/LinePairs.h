// Two files of lines that belong together, read pair by pair.
#pragma once

#include "support/Files.h"

namespace xfc {

// The longest line that is read of text to work on; what follows in it is skipped. No model takes a sentence as long.
constexpr size_t longestLine = 1 << 20;
// Lines that are worked on together, at most so many and about so many bytes: enough for full batches, few enough for
// streams without end.
constexpr size_t windowLines = 8192, windowBytes = 8 << 20;

class LinePairs {
public:
  // `rule` says in a message what was expected where one file has more lines.
  LinePairs(const std::string &first, const std::string &second, std::string rule)
      : first(first, longestLine), second(second, longestLine), rule(std::move(rule)) {}
  // The next two lines; false after the last. Throws Error: unreadable, invalid UTF-8, or one file ends before the
  // other.
  bool next(std::string &one, std::string &other);

  LineReader first, second;

private:
  std::string rule;
};

} // namespace xfc
