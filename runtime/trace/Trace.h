// Records what threads did and when: a timeline in the Chrome trace event format, which Perfetto and chrome://tracing
// open.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xfc {

// An interval on a track. Times are nanoseconds since the trace began. The strings must stay valid until the trace has
// been written.
struct TraceEvent {
  std::string_view kind = {}, name = {}; // kind: kernel, program, exchange ...; viewers call it the category
  int64_t number = -1;                   // follows the name unless negative: step 12
  // For a kernel: the program it runs in, and the location in model.json of what it computes.
  std::string_view program = {}, place = {};
  int64_t launch = -1;               // for a kernel; the threads' shares of a launch have the same number
  int64_t chunks = 0, allChunks = 0; // of this share; of the launch
  int64_t rows = -1;                 // of the batch that the launch works on
  double flops = 0, bytes = 0; // floating-point operations, and bytes read and written or sent, of the whole launch
  int64_t begin = 0, end = 0;
};

// There is one track for each thread of a pool, the first being the main thread, one for a GPU, and one for exchanges
// between ranks that go on while threads compute. Each track is written to by one thread at a time. All memory is
// allocated at the beginning; events that do not fit are dropped.
class Trace {
public:
  explicit Trace(int threads, size_t eventsOfTrack = size_t{1} << 18);
  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began).count();
  }
  // The system clock in nanoseconds when the trace began, by which the traces of several processes are aligned.
  int64_t beginning() const { return wallClock; }

  void add(int track, const TraceEvent &event);
  // The event for a track's share of a launch: the existing one, or a new one that begins now. The caller extends its
  // end and counts its chunks. Null if there is no room.
  TraceEvent *share(int track, const TraceEvent &launch);
  // Allocates `count` consecutive launch numbers and returns the first.
  int64_t newLaunches(int64_t count = 1) { return std::exchange(nextLaunch, nextLaunch + count); }

  int gpu() const { return threads; } // the GPU's track
  int ranks() const { return threads + 1; }
  const std::vector<TraceEvent> &events(int track) const { return tracks[track].events; }
  int64_t leftOut() const; // the number of dropped events

  // The events as comma-separated JSON for writeTrace(), under this process number and name, with times shifted by
  // `later` nanoseconds.
  std::string json(int process, const std::string &name, int64_t later = 0) const;

private:
  struct alignas(64) Track {
    std::vector<TraceEvent> events; // never grows beyond the reserved capacity
    int64_t launch = -1;            // the last launch, whether or not there was room for it
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

// Atomically writes a file from the output of json() for each process. Throws Error with the system's reason.
void writeTrace(const std::string &file, const std::vector<std::string> &processes);

// Records what the main thread does during this object's lifetime. Costs a comparison if nothing is traced.
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
