// Reads two parallel files, one pair of lines at a time.
#include "corpora/LinePairs.h"
#include "support/LineReader.h"

namespace xfc {

bool LinePairs::next(std::string &one, std::string &other) {
  const bool more = first.next(one), moreOther = second.next(other);
  if (more == moreOther)
    return more;
  // For the count in the message it is worth reading a file to its end, but not waiting for a stream.
  LineReader &longer = more ? first : second;
  std::string line;
  while (longer.isFile() && longer.next(line)) {
  }
  auto count = [&](const LineReader &reader) {
    const bool open = &reader == &longer && !reader.isFile();
    return open ? "more than " + std::to_string(reader.number() - 1) : std::to_string(reader.number());
  };
  throw Error(first.name() + " has " + count(first) + " lines, " + second.name() + " " + count(second) + "; " + rule);
}

} // namespace xfc
