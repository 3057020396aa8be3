// What a server counts, in the text format of Prometheus.
#include "serve/Metrics.h"
#include <algorithm>
#include <cstdio>

namespace xfc {

static std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

static void describe(std::string &text, const std::string &name, const char *type, const char *help) {
  const std::string typeLine = "# TYPE " + name + " " + type + "\n";
  if (text.find(typeLine) == std::string::npos)
    text += "# HELP " + name + " " + help + "\n" + typeLine;
}

static std::string inBraces(const std::string &labels) { return labels.empty() ? "" : "{" + labels + "}"; }

void Metrics::count(const std::string &path, int status, double seconds) {
  ++requests[{path, status}];
  Latencies &found = latencies[path];
  ++found.buckets[std::ranges::lower_bound(bounds, seconds) - bounds.begin()];
  found.sum += seconds;
}

void Metrics::add(std::string &text, const std::string &name, const char *type, const char *help,
                  const std::string &labels, double value) {
  describe(text, name, type, help);
  text += name + inBraces(labels) + " " + shown(value) + "\n";
}

std::string Metrics::text() const {
  std::string text;
  for (const auto &[key, number] : requests)
    add(text, "xfc_requests_total", "counter", "requests by path and status of the answer",
        "path=\"" + key.first + "\",code=\"" + std::to_string(key.second) + "\"", static_cast<double>(number));
  const std::string name = "xfc_request_seconds";
  for (const auto &[path, found] : latencies) {
    describe(text, name, "histogram", "seconds from the end of a request to the end of its answer");
    const std::string label = "path=\"" + path + "\"";
    int64_t sum = 0;
    for (size_t i = 0; i < found.buckets.size(); ++i) {
      sum += found.buckets[i];
      char bound[32] = "+Inf";
      if (i < bounds.size())
        std::snprintf(bound, sizeof bound, "%g", bounds[i]);
      text += name + "_bucket{" + label + ",le=\"" + bound + "\"} " + std::to_string(sum) + "\n";
    }
    text += name + "_sum{" + label + "} " + shown(found.sum) + "\n";
    text += name + "_count{" + label + "} " + std::to_string(sum) + "\n";
  }
  return text;
}

} // namespace xfc
