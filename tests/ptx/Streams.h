// Finds races between streams: work of two streams on the same bytes, at least one of them writing, that neither events
// nor waits of the host order. Each stream has a vector clock, and so has the host: work that it submits is ordered
// after all that it has waited for.
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
  using Clock = std::vector<uint32_t>; // by stream; missing entries are 0
  static constexpr uint32_t Host = 0;  // also the legacy stream, for which the host waits

  // One unit of work: a copy, a kernel, a graph.
  struct Work {
    uint32_t stream;
    Clock clock; // the entry for its own stream is its number there
    std::string what;
  };

  uint32_t newStream() { return clocks.emplace_back(), uint32_t(clocks.size() - 1); }
  std::shared_ptr<const Work> give(uint32_t stream, std::string what);
  const Clock &clockOf(uint32_t stream) const { return clocks[stream]; }
  // Orders future work of `stream` after everything in `clock`.
  void wait(uint32_t stream, const Clock &clock);
  void waitForAll(uint32_t stream);

  // Records that the work accesses bytes of the device or the host. Returns a description of the race, if any.
  std::optional<std::string> access(const std::shared_ptr<const Work> &work, uint64_t address, uint64_t bytes,
                                    bool writes);
  void forget(uint64_t address, uint64_t bytes); // for freed memory

private:
  struct Segment {
    uint64_t end;
    std::shared_ptr<const Work> writer;
    std::vector<std::shared_ptr<const Work>> readers; // since the last write: the last reader of each stream
  };
  std::vector<Clock> clocks = std::vector<Clock>(1);
  std::map<uint64_t, Segment> segments; // by the first byte
  void split(uint64_t at);
};

} // namespace xfc::ptx
