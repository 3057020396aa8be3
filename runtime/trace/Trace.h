// What threads did and when: a timeline in the Chrome trace event format, which Perfetto and chrome://tracing open.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xfc {

// What took some time on a track. Times are nanoseconds since the trace was begun. The strings stay where they are
// until it has been written.
struct TraceEvent {
  std::string_view kind = {}, name = {}; // kind: kernel, program, exchange ...; viewers call it the category
  int64_t number = -1;                   // follows the name where it is not negative: step 12
  // Of a kernel: what it runs in, and the place in model.json of what it computes.
  std::string_view program = {}, place = {};
  int64_t launch = -1;               // of a kernel; the shares that threads have of a launch have the same number
  int64_t chunks = 0, allChunks = 0; // of this share, and of the launch
  int64_t rows = -1;                 // of the batch that the launch works on
  double flops = 0, bytes = 0;       // floating-point operations, bytes read and written or sent; of the whole launch
  int64_t begin = 0, end = 0;
};

// The tracks are the threads of a pool, of which the first is the main thread, and one of a GPU. Each track is written
// to by one thread at a time. All memory is taken in the beginning; events for which it does not suffice are left out.
class Trace {
public:
  explicit Trace(int threads, size_t eventsOfTrack = size_t{1} << 18);
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began).count();
  }
  // Nanoseconds of the system's clock when it began, by which the traces of several processes are put together.
  int64_t beginning() const { return wallClock; }

  void add(int track, const TraceEvent &event);
  // The share of a track in a launch: the one that is there, or a new one that begins now. The caller moves its end,
  // and counts its chunks. Null where there is no room.
  TraceEvent *share(int track, const TraceEvent &launch);
  // The number of a launch, the first of so many.
  int64_t newLaunches(int64_t count = 1) { return std::exchange(nextLaunch, nextLaunch + count); }

  int gpu() const { return threads; } // its track
  const std::vector<TraceEvent> &events(int track) const { return tracks[track].events; }
  int64_t leftOut() const; // events

  // The events as JSON, with commas between them: those of a process of this number and name, `later` nanoseconds
  // later. For writeTrace().
  std::string json(int process, const std::string &name, int64_t later = 0) const;

private:
  struct alignas(64) Track {
    std::vector<TraceEvent> events; // never more than was reserved
    int64_t launch = -1;            // the last one, whether there was room for it or not
    int64_t leftOut = 0;
    bool hasRoom() { return events.size() < events.capacity() || (++leftOut, false); }
  };
  std::string nameOf(int track) const;

  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  const int64_t wallClock;
  const int threads;
  int64_t nextLaunch = 0;
  std::vector<Track> tracks;
};

// The file of what json() gave for each process, whole or not at all. Throws Error with the system's reason.
void writeTrace(const std::string &file, const std::vector<std::string> &processes);

// What the main thread does while this is there. Costs a comparison where nothing is traced.
class Span {
public:
  Span(Trace *trace, std::string_view kind, std::string_view name, int64_t number = -1) : trace(trace) {
    if (trace)
      event = {.kind = kind, .name = name, .number = number, .begin = trace->now()};
  }
  Span(const Span &) = delete;
  ~Span() {
    if (!trace)
      return;
    event.end = trace->now();
    trace->add(0, event);
  }
  TraceEvent event;

private:
  Trace *const trace;
};

} // namespace xfc
