// Records what threads did and when, and writes it as JSON.
#include "trace/Trace.h"
#include "support/FileWriter.h"
#include "support/Format.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace xfc {
namespace {

// The text as a quoted JSON string. Invalid UTF-8 is replaced, because names may come from anywhere.
std::string jsonOf(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The format's unit is the microsecond.
std::string microseconds(int64_t nanoseconds) {
  return format("%lld.%03d", static_cast<long long>(nanoseconds / 1000), static_cast<int>(nanoseconds % 1000));
}

// A metadata event: the name or the sort position of a process or a thread.
std::string metadata(const char *what, int process, int track, const char *key, const std::string &value) {
  return format(R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"%s":%s}})", what, process, track, key,
                value.c_str());
}

std::string argumentsOf(const TraceEvent &event) {
  std::string text;
  auto add = [&](const char *key, const std::string &value) {
    text += format("%s\"%s\":", text.empty() ? "" : ",", key) + value;
  };
  auto addCount = [&](const char *key, int64_t count) { add(key, std::to_string(count)); };
  if (!event.program.empty())
    add("program", jsonOf(event.program));
  if (!event.place.empty())
    add("place", jsonOf(event.place));
  if (event.rows >= 0)
    addCount("rows", event.rows);
  if (event.flops > 0)
    add("flops", format("%.0f", event.flops));
  if (event.bytes > 0)
    add("bytes", format("%.0f", event.bytes));
  if (event.launch >= 0)
    addCount("launch", event.launch);
  if (event.allChunks > 0) {
    addCount("chunks", event.chunks);
    addCount("of chunks", event.allChunks);
  }
  return text;
}

} // namespace

Trace::Trace(int threads, size_t eventsOfTrack)
    : wallClock(
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
              .count()),
      threads(threads), tracks(threads + 2) {
  for (Track &track : tracks)
    track.events.reserve(eventsOfTrack);
}

void Trace::add(int at, const TraceEvent &event) {
  if (Track &track = tracks[at]; track.hasRoom())
    track.events.push_back(event);
}

TraceEvent *Trace::share(int at, const TraceEvent &launch) {
  Track &track = tracks[at];
  if (track.launch != launch.launch) {
    track.launch = launch.launch;
    if (!track.hasRoom())
      return nullptr;
    track.events.push_back(launch);
    track.events.back().begin = track.events.back().end = now();
  }
  TraceEvent *last = track.events.empty() ? nullptr : &track.events.back();
  return last && last->launch == launch.launch ? last : nullptr;
}

int64_t Trace::leftOut() const {
  int64_t count = 0;
  for (const Track &track : tracks)
    count += track.leftOut;
  return count;
}

std::string Trace::nameOf(int track) const {
  if (track == gpu())
    return "GPU";
  if (track == ranks())
    return "other ranks";
  return track == 0 ? "main thread" : "thread " + std::to_string(track);
}

std::string Trace::json(int process, const std::string &name, int64_t later) const {
  std::string text = metadata("process_name", process, 0, "name", jsonOf(name)) + ",\n" +
                     metadata("process_sort_index", process, 0, "sort_index", std::to_string(process));
  if (const int64_t count = leftOut())
    text += ",\n" + metadata("process_labels", process, 0, "labels",
                             jsonOf(std::to_string(count) + " events were dropped because the trace buffer is full"));
  for (int track = 0; track < static_cast<int>(tracks.size()); ++track) {
    if (track >= gpu() && events(track).empty())
      continue;
    text += ",\n" + metadata("thread_name", process, track, "name", jsonOf(nameOf(track)));
    text += ",\n" + metadata("thread_sort_index", process, track, "sort_index", std::to_string(track));
    // An enclosing event is added after those that it encloses, but must precede them.
    std::vector<TraceEvent> sorted = events(track);
    std::ranges::stable_sort(sorted, [](const TraceEvent &a, const TraceEvent &b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    for (const TraceEvent &event : sorted)
      text += format(",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":", process, track) +
              microseconds(event.begin + later) + ",\"dur\":" + microseconds(event.end - event.begin) +
              ",\"cat\":" + jsonOf(event.kind) + ",\"name\":" +
              jsonOf(std::string(event.name) + (event.number < 0 ? "" : " " + std::to_string(event.number))) +
              ",\"args\":{" + argumentsOf(event) + "}}";
  }
  return text;
}

void writeTrace(const std::string &file, const std::vector<std::string> &processes) {
  FileWriter writer(file);
  writer.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  for (size_t i = 0; i < processes.size(); ++i) {
    writer.write(i ? ",\n" : "");
    writer.write(processes[i]);
  }
  writer.write("\n]}\n");
  writer.commit();
}

} // namespace xfc
