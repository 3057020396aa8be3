// Two files of lines that belong together, read pair by pair.
#include "text/LinePairs.h"

namespace xfc {

bool LinePairs::next(std::string &one, std::string &other) {
  const bool more = first.next(one), moreOther = second.next(other);
  if (more == moreOther)
    return more;
  // How many there are is worth reading a file to its end, but not waiting for a stream.
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
