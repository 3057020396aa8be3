// What a server counts, in the text format of Prometheus.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace xfc {

class Metrics {
public:
  // A request for `path` was answered with `status`, after this many seconds.
  void count(const std::string &path, int status, double seconds);
  // A metric by itself: its type, what it means, its labels (model="en-fr"; none: empty), and its value.
  static void add(std::string &text, const std::string &name, const char *type, const char *help,
                  const std::string &labels, double value);
  std::string text() const; // requests and their latencies

private:
  static constexpr std::array<double, 12> bounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
  struct Latencies {
    std::array<int64_t, bounds.size() + 1> buckets{};
    double sum = 0;
  };
  std::map<std::pair<std::string, int>, int64_t> requests;
  std::map<std::string, Latencies> latencies;
};

} // namespace xfc
