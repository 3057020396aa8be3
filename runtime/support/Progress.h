// What a person sees of long work: a bar or lines on standard error.
#pragma once

#include <chrono>
#include <string>

namespace xfc {

// A bar with the remaining time on a terminal; a line every few seconds elsewhere.
class ProgressBar {
public:
  explicit ProgressBar(bool quiet);
  ~ProgressBar();
  // `fraction` of the work is done; `status` says how it stands.
  void update(double fraction, const std::string &status);
  // Something to keep on the screen.
  void say(const std::string &line);

private:
  using Clock = std::chrono::steady_clock;
  bool quiet, terminal;
  double from = -1; // the fraction at the first update: a resumed run does not begin at 0
  Clock::time_point start = Clock::now(), last = start; // of the first update, and of the last that was shown
};

std::string duration(double seconds); // 1:02:03, 2:03

} // namespace xfc
