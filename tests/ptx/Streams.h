// Finds races between streams: work of two of them on the same bytes, at least one writing, that neither events nor
// waits of the host put in an order. Each stream has a vector clock, and so has the host, which orders what it gives to
// streams by what it has waited for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace xfc::ptx {

class StreamOrder {
public:
  using Clock = std::vector<uint32_t>; // by stream, as far as it goes; beyond: nothing
  static constexpr uint32_t Host = 0;  // and the legacy stream, for which it waits

  // What is given to a stream at once: a copy, a kernel, a graph.
  struct Work {
    uint32_t stream;
    Clock clock; // its own part is its number in the stream
    std::string what;
  };

  uint32_t newStream() { return clocks.emplace_back(), uint32_t(clocks.size() - 1); }
  std::shared_ptr<const Work> give(uint32_t stream, std::string what);
  const Clock &clockOf(uint32_t stream) const { return clocks[stream]; }
  // What is given to `stream` from now on comes after what `clock` knows.
  void wait(uint32_t stream, const Clock &clock);
  void waitForAll(uint32_t stream);

  // The work accesses bytes, of the device or of the host. What it races with, or nothing.
  std::optional<std::string> access(const std::shared_ptr<const Work> &work, uint64_t address, uint64_t bytes,
                                    bool writes);
  void forget(uint64_t address, uint64_t bytes); // freed

private:
  struct Segment {
    uint64_t end;
    std::shared_ptr<const Work> writer;
    std::vector<std::shared_ptr<const Work>> readers; // since; the last of each stream
  };
  std::vector<Clock> clocks = std::vector<Clock>(1);
  std::map<uint64_t, Segment> segments; // by their first byte
  void split(uint64_t at);
};

} // namespace xfc::ptx
