// Draws where the time of a step goes as a flame graph, from the timeline that --trace wrote.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace xfc {

// What part of the time was spent in something: in itself and in its parts, the largest of which comes first.
struct FlameFrame {
  std::string name;
  int64_t nanoseconds = 0; // of all threads and GPUs, parts included
  std::vector<FlameFrame> parts;
};

// The time of a timeline. Kernels are by program, place in model.json and name, on whatever thread they ran: train,
// decoder, layers, 0 ... Everything else is by its category; an event's time within others that it encloses on its
// thread is theirs, so that each nanosecond of a thread counts once.
struct StepProfile {
  FlameFrame all;
  int64_t steps = 0; // that the timeline holds; 0 if there are none
};

// Takes the JSON that writeTrace() wrote; `file` is named in messages. Throws Error if it is something else, or if it
// has no kernel.
StepProfile profileOf(const nlohmann::json &trace, const std::string &file);

// Where a frame is drawn: below the frame that it is a part of, side by side with the other parts.
struct FlameBox {
  const FlameFrame *frame;
  const FlameBox *within; // null for the first
  double x, width;        // of all
  int depth;              // 0 for the first
  int color;              // that of the part of the whole that it belongs to
};

// The boxes of a profile in a drawing of this width; frames that are narrower than `least` are left out. Those that
// are part of a box come after it, and point to it.
std::vector<FlameBox> flameBoxes(const FlameFrame &all, double width, double least);

// SVG for a page (support/Markup.h).
std::string flameGraphSvg(const StepProfile &profile);

} // namespace xfc
