// Draws where the time of a step goes as a flame graph.
#include "train/FlameGraph.h"
#include "support/Error.h"
#include "support/Format.h"
#include "support/Markup.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <span>

namespace xfc {
namespace {

using FramePath = std::vector<std::string>;
// Sorted, so that what has a common beginning stands together.
using TimeOfPaths = std::map<FramePath, int64_t>;

constexpr size_t deepest = 12; // frames of a path; a place with more parts is cut

struct TimedEvent {
  int64_t begin = 0, end = 0; // nanoseconds
  FramePath path;
};

// The text under a key; empty if there is none.
std::string textUnder(const nlohmann::json &object, const char *key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t nanosecondsUnder(const nlohmann::json &event, const char *key, const std::string &file) {
  const auto found = event.find(key);
  const double microseconds = found != event.end() && found->is_number() ? found->get<double>() : -1;
  constexpr double most = 1e12; // 11 days, far from the limits of sums
  if (!(microseconds >= 0 && microseconds <= most))
    throw Error(file + ": an event's " + key + " is not a number of microseconds; expected a file that --trace wrote");
  return std::llround(microseconds * 1e3);
}

FramePath pathOf(const nlohmann::json &event, const std::string &kind) {
  const std::string name = textUnder(event, "name");
  if (kind == "program")
    return {name};
  if (kind != "kernel")
    return {kind};
  const auto arguments = event.find("args");
  const bool hasArguments = arguments != event.end() && arguments->is_object();
  const std::string program = hasArguments ? textUnder(*arguments, "program") : "",
                    place = hasArguments ? textUnder(*arguments, "place") : "";
  FramePath path = {program.empty() ? "no program" : program};
  for (size_t begin = 0; begin < place.size() && path.size() + 1 < deepest;) {
    const size_t end = std::min(place.find('.', begin), place.size());
    path.push_back(place.substr(begin, end - begin));
    begin = end + 1;
  }
  path.push_back(name);
  return path;
}

// Adds the time of a track's events, each without that of those that it encloses.
void addTrack(std::vector<TimedEvent> &events, TimeOfPaths &times) {
  std::ranges::stable_sort(events, [](const TimedEvent &a, const TimedEvent &b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<std::pair<const TimedEvent *, int64_t>> open; // and their own time
  auto close = [&] {
    times[open.back().first->path] += std::max<int64_t>(open.back().second, 0);
    open.pop_back();
  };
  for (const TimedEvent &event : events) {
    while (!open.empty() && open.back().first->end <= event.begin)
      close();
    if (!open.empty())
      open.back().second -= std::min(event.end, open.back().first->end) - event.begin;
    open.emplace_back(&event, event.end - event.begin);
  }
  while (!open.empty())
    close();
}

using TimeOfPath = TimeOfPaths::value_type;

// The frame of paths that agree in their first `depth` parts.
FlameFrame frameOf(const std::string &name, std::span<const TimeOfPath *const> times, size_t depth) {
  FlameFrame frame{name, 0, {}};
  for (size_t begin = 0; begin < times.size();) {
    const FramePath &path = times[begin]->first;
    size_t end = begin + 1;
    if (path.size() == depth) {
      frame.nanoseconds += times[begin]->second;
    } else {
      while (end < times.size() && times[end]->first[depth] == path[depth])
        ++end;
      frame.parts.push_back(frameOf(path[depth], times.subspan(begin, end - begin), depth + 1));
      frame.nanoseconds += frame.parts.back().nanoseconds;
    }
    begin = end;
  }
  std::ranges::stable_sort(frame.parts,
                           [](const FlameFrame &a, const FlameFrame &b) { return a.nanoseconds > b.nanoseconds; });
  return frame;
}

int64_t boxesOf(const FlameFrame &frame, double scale, double least) {
  int64_t count = 1;
  for (const FlameFrame &part : frame.parts)
    if (static_cast<double>(part.nanoseconds) * scale >= least)
      count += boxesOf(part, scale, least);
  return count;
}

void addBoxes(std::vector<FlameBox> &boxes, size_t at, double scale, double least) {
  const FlameBox box = boxes[at];
  double x = box.x;
  int color = box.color;
  for (const FlameFrame &part : box.frame->parts) {
    const double width = static_cast<double>(part.nanoseconds) * scale;
    if (box.depth == 0)
      color = static_cast<int>(&part - box.frame->parts.data()) % seriesColors;
    if (width >= least) {
      boxes.push_back({&part, &boxes[at], x, width, box.depth + 1, color});
      addBoxes(boxes, boxes.size() - 1, scale, least);
    }
    x += width;
  }
}

std::string pathTo(const FlameBox &box) {
  return box.within && box.within->within ? pathTo(*box.within) + " › " + box.frame->name : box.frame->name;
}

} // namespace

StepProfile profileOf(const nlohmann::json &trace, const std::string &file) {
  const auto events = trace.find("traceEvents");
  if (!trace.is_object() || events == trace.end() || !events->is_array())
    throw Error(file + ": has no traceEvents; expected a file that --trace wrote");
  std::map<std::pair<int64_t, int64_t>, std::vector<TimedEvent>> tracks; // by process and thread
  std::map<int64_t, int64_t> steps;                                      // by process
  bool kernels = false;
  for (const nlohmann::json &event : *events) {
    if (!event.is_object() || textUnder(event, "ph") != "X")
      continue;
    const std::string kind = textUnder(event, "cat");
    auto number = [&](const char *key) {
      const auto found = event.find(key);
      return found != event.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
    };
    const int64_t begin = nanosecondsUnder(event, "ts", file);
    tracks[{number("pid"), number("tid")}].push_back(
        {begin, begin + nanosecondsUnder(event, "dur", file), pathOf(event, kind)});
    kernels |= kind == "kernel";
    if (kind == "step")
      ++steps[number("pid")];
  }
  if (!kernels)
    throw Error(file + ": has no kernel; expected a file that --trace wrote during some steps");
  TimeOfPaths times;
  for (auto &[track, ofTrack] : tracks)
    addTrack(ofTrack, times);
  std::vector<const TimeOfPath *> sorted;
  for (const TimeOfPath &time : times)
    sorted.push_back(&time);
  StepProfile profile{frameOf("all threads", sorted, 0), 0};
  for (const auto &[process, count] : steps)
    profile.steps = std::max(profile.steps, count);
  return profile;
}

std::vector<FlameBox> flameBoxes(const FlameFrame &all, double width, double least) {
  const double scale = width / static_cast<double>(std::max<int64_t>(all.nanoseconds, 1));
  std::vector<FlameBox> boxes;
  boxes.reserve(boxesOf(all, scale, least)); // so that pointers to boxes stay valid
  boxes.push_back({&all, nullptr, 0, width, 0, 0});
  addBoxes(boxes, 0, scale, least);
  return boxes;
}

std::string flameGraphSvg(const StepProfile &profile) {
  constexpr double width = 960, height = 18, letter = 6.7, least = 0.4;
  const std::vector<FlameBox> boxes = flameBoxes(profile.all, width, least);
  int deepestBox = 0;
  for (const FlameBox &box : boxes)
    deepestBox = std::max(deepestBox, box.depth);
  const double total = static_cast<double>(std::max<int64_t>(profile.all.nanoseconds, 1)),
               steps = static_cast<double>(std::max<int64_t>(profile.steps, 1));
  std::string svg =
      format("<svg class=\"flame\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" font-family=\"monospace\" "
             "font-size=\"11\">\n",
             width, height * (deepestBox + 1), width, height * (deepestBox + 1));
  for (const FlameBox &box : boxes) {
    const double time = static_cast<double>(box.frame->nanoseconds), y = height * box.depth;
    svg += format("<g class=\"series%d\"><rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%.0f\" "
                  "fill=\"currentColor\" fill-opacity=\"%.2f\" class=\"edge\"><title>",
                  box.color, box.x, y, box.width, height, box.depth == 0 ? 0.15 : 0.4) +
           escapeMarkup(pathTo(box)) +
           format(": %.3f ms%s, %.1f %%</title></rect>", time / steps / 1e6, profile.steps > 0 ? " a step" : "",
                  100 * time / total);
    if (const auto columns = static_cast<int64_t>((box.width - 6) / letter); columns >= 3)
      svg += format("<text class=\"ink\" x=\"%.2f\" y=\"%.0f\">", box.x + 3, y + 13) +
             escapedEnd(box.frame->name, columns) + "</text>";
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

} // namespace xfc
