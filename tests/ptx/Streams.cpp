// Finds races between streams.
#include "Streams.h"
#include <algorithm>

namespace xfc::ptx {

static uint32_t at(const StreamOrder::Clock &clock, uint32_t stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

static void join(StreamOrder::Clock &into, const StreamOrder::Clock &from) {
  into.resize(std::max(into.size(), from.size()));
  for (size_t k = 0; k < from.size(); ++k)
    into[k] = std::max(into[k], from[k]);
}

std::shared_ptr<const StreamOrder::Work> StreamOrder::give(uint32_t stream, std::string what) {
  Clock &clock = clocks[stream];
  join(clock, clocks[Host]);
  clock.resize(std::max<size_t>(clock.size(), stream + 1));
  ++clock[stream];
  return std::make_shared<Work>(Work{stream, clock, std::move(what)});
}

void StreamOrder::wait(uint32_t stream, const Clock &clock) { join(clocks[stream], Clock(clock)); }

void StreamOrder::waitForAll(uint32_t stream) {
  for (uint32_t other = 0; other < clocks.size(); ++other)
    wait(stream, clocks[other]);
}

void StreamOrder::split(uint64_t at) {
  auto after = segments.upper_bound(at);
  if (after == segments.begin())
    return;
  auto &[begin, segment] = *std::prev(after);
  if (begin == at || segment.end <= at)
    return;
  segments.emplace_hint(after, at, segment);
  segment.end = at;
}

std::optional<std::string> StreamOrder::access(const std::shared_ptr<const Work> &work, uint64_t address,
                                               uint64_t bytes, bool writes) {
  if (bytes == 0)
    return std::nullopt;
  const uint64_t end = address + bytes;
  split(address);
  split(end);
  auto isBefore = [&](const Work &other) {
    return other.stream == work->stream || at(work->clock, other.stream) >= at(other.clock, other.stream);
  };
  auto race = [&](const Work &other, bool otherWrites) {
    return work->what + " on stream " + std::to_string(work->stream) + (writes ? " writes" : " reads") + " what " +
           other.what + " on stream " + std::to_string(other.stream) + (otherWrites ? " writes" : " reads") +
           ": nothing orders the two";
  };
  auto from = segments.lower_bound(address), to = from;
  for (; to != segments.end() && to->first < end; ++to) {
    const Segment &segment = to->second;
    if (segment.writer && !isBefore(*segment.writer))
      return race(*segment.writer, true);
    for (const auto &reader : segment.readers)
      if (writes && !isBefore(*reader))
        return race(*reader, false);
  }
  if (writes) {
    segments.erase(from, to);
    segments.insert({address, {end, work, {}}});
    return std::nullopt;
  }
  uint64_t next = address;
  for (auto it = from; it != to; next = it->second.end, ++it) {
    if (next < it->first)
      segments.insert({next, {it->first, nullptr, {work}}});
    auto &readers = it->second.readers;
    std::erase_if(readers, [&](const auto &reader) { return reader->stream == work->stream; });
    readers.push_back(work);
  }
  if (next < end)
    segments.insert({next, {end, nullptr, {work}}});
  return std::nullopt;
}

void StreamOrder::forget(uint64_t address, uint64_t bytes) {
  split(address);
  split(address + bytes);
  segments.erase(segments.lower_bound(address), segments.lower_bound(address + bytes));
}

} // namespace xfc::ptx
