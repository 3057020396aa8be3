// How much memory this process can still take.
#include "device/cpu/AvailableMemory.h"
#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

namespace xfc {
namespace {

constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();

// The first number in a file, or the one that follows `word` at the beginning of a line; `otherwise` if there is none.
int64_t numberIn(const std::string &file, const std::string &word, int64_t otherwise) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (!word.empty() && (!(words >> first) || first != word))
      continue;
    return words >> number ? number : otherwise;
  }
  return otherwise;
}

// The memory that a control group and its ancestors may still use, by their limits. Pages of files count as free, since
// they can be reclaimed.
int64_t leftInGroup(const std::string &mount, std::string path, const char *limit, const char *usage,
                    const char *statisticsOf) {
  int64_t left = unlimited;
  for (;; path.resize(path.rfind('/'))) {
    const std::string folder = mount + path + "/", statistics = folder + "memory.stat", prefix = statisticsOf;
    const int64_t most = numberIn(folder + limit, "", unlimited), used = numberIn(folder + usage, "", 0);
    const int64_t files =
        numberIn(statistics, prefix + "inactive_file", 0) + numberIn(statistics, prefix + "active_file", 0);
    if (most < int64_t(1) << 60) // cgroup v1 writes "no limit" as a huge number
      left = std::min(left, std::max<int64_t>(most - used + std::min(files, used), 1));
    if (path.empty() || path.find('/') == std::string::npos)
      return left;
  }
}

} // namespace

int64_t availableMemory(const std::string &root) {
  int64_t left = numberIn(root + "/proc/meminfo", "MemAvailable:", 0) * 1024;
  if (left <= 0)
    left = unlimited;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) { // number:controllers:path
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/")
      path.clear();
    if (controllers == ",,")
      left = std::min(left, leftInGroup(root + "/sys/fs/cgroup", path, "memory.max", "memory.current", ""));
    else if (controllers.find(",memory,") != std::string::npos)
      left = std::min(left, leftInGroup(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                        "memory.usage_in_bytes", "total_"));
  }
  if (rlimit limit{}; root.empty() && ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const int64_t taken = numberIn("/proc/self/statm", "", 0) * ::sysconf(_SC_PAGESIZE);
    left = std::min(left, std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur) - taken, 1));
  }
  return left == unlimited ? 0 : left;
}

} // namespace xfc
