// The CPU's features as Linux lists them, and permission to use the tiles of AMX.
#include "device/cpu/Features.h"
#include <fstream>
#include <set>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>

namespace xfc {

static std::set<std::string> listed() {
  std::set<std::string> features;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("flags")) {
      std::istringstream words(line.substr(line.find(':') + 1));
      for (std::string word; words >> word;)
        features.insert(word);
      break;
    }
  return features;
}

// The tile registers are large, so Linux gives a process room for them only on request. Threads inherit the permission.
static bool permitTiles() {
  constexpr long request = 0x1023, tileData = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA of asm/prctl.h
  return syscall(SYS_arch_prctl, request, tileData) == 0;
}

std::string missingFeatures(const std::string &needed) {
  const std::set<std::string> have = listed();
  std::string missing;
  std::istringstream names(needed);
  for (std::string feature; std::getline(names, feature, ',');)
    if (!feature.empty() && (!have.count(feature) || (feature == "amx_tile" && !permitTiles())))
      missing += (missing.empty() ? "" : " ") + feature;
  return missing;
}

} // namespace xfc
