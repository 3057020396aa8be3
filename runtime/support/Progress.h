// Shows the progress of long-running work on standard error: a bar, or lines.
#pragma once

#include <chrono>
#include <string>

namespace xfc {

// A bar with the remaining time on a terminal; otherwise a line every ten seconds.
class ProgressBar {
public:
  explicit ProgressBar(bool quiet);
  ~ProgressBar();
  // `fraction` of the work is done; `status` describes the current state.
  void update(double fraction, const std::string &status);
  // Prints a line that stays on the screen.
  void say(const std::string &line);

private:
  using Clock = std::chrono::steady_clock;
  bool quiet, terminal;
  double from = -1; // the fraction at the first update: a resumed run does not begin at 0
  Clock::time_point start = Clock::now(), last = start; // times of the first update and of the last one shown
};

std::string duration(double seconds); // 1:02:03, 2:03

} // namespace xfc
