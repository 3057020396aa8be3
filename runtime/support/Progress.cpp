// Shows the progress of long-running work on standard error: a bar, or lines.
#include "support/Progress.h"
#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace xfc {

ProgressBar::ProgressBar(bool quiet) : quiet(quiet), terminal(isatty(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() {
  if (terminal && !quiet)
    std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(double fraction, const std::string &status) {
  if (quiet)
    return;
  Clock::time_point now = Clock::now();
  if (from < 0) {
    from = fraction;
    start = now;
    if (fraction >= 1) // no line for work that was done at once
      return;
  } else if (now - last < (terminal ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000))) {
    return;
  }
  last = now;
  fraction = std::clamp(fraction, 0.0, 1.0);
  double elapsed = std::chrono::duration<double>(now - start).count();
  std::string eta = fraction > from ? duration(elapsed * (1 - fraction) / (fraction - from)) : "?";
  if (terminal) {
    constexpr int width = 24;
    int full = static_cast<int>(fraction * width);
    std::string bar = std::string(full, '=') + std::string(width - full, ' ');
    std::fprintf(stderr, "\r[%s] %3.0f%%  %s  ETA %s\033[K", bar.c_str(), 100 * fraction, status.c_str(), eta.c_str());
    std::fflush(stderr);
  } else {
    std::fprintf(stderr, "%3.0f%%  %s  ETA %s\n", 100 * fraction, status.c_str(), eta.c_str());
  }
}

void ProgressBar::say(const std::string &line) {
  if (!quiet)
    std::fprintf(stderr, "%s%s\n", terminal ? "\r\033[K" : "", line.c_str());
}

std::string duration(double seconds) {
  long long total = static_cast<long long>(seconds > 0 ? std::min(seconds, 1e12) + 0.5 : 0);
  char text[32];
  if (total >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", total / 60, total % 60);
  return text;
}

} // namespace xfc
