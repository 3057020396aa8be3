// The instruction sets we know.
#include "InstructionSet.h"
#include "core/Error.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"
#include <tuple>

namespace xfc {

static InstructionSet v3(std::string name) { return {std::move(name), "x86-64-v3", "", "avx2,fma,bmi2,f16c,movbe", 32, ""}; }

static InstructionSet v4(std::string name) {
  // In LLVM's order of instructions for no CPU in particular, the micro-kernel's loop keeps one of its sums on the stack.
  return {std::move(name), "x86-64-v4", "", "avx2,fma,bmi2,f16c,movbe,avx512f,avx512bw,avx512cd,avx512dq,avx512vl", 64, "sapphirerapids"};
}

// What some CPUs of level v4 have besides, in LLVM's names and those of /proc/cpuinfo; a later one has the earlier.
struct Extension {
  const char *name, *feature, *needed;
  bool InstructionSet::*flag;
};
static const Extension extensions[] = {
    {"bf16", "avx512bf16", "avx512_bf16", &InstructionSet::bf16},
    {"amx", "amx-bf16", "amx_tile,amx_bf16", &InstructionSet::amx},
};

static void add(InstructionSet &set, const Extension &extension) {
  set.features += (set.features.empty() ? "+" : ",+") + std::string(extension.feature);
  set.needed += std::string(",") + extension.needed;
  set.*extension.flag = true;
}

InstructionSet InstructionSet::named(const std::string &name) {
  if (name == "x86-64-v3")
    return v3(name);
  if (name == "plain")
    return {name, "x86-64", "", "", 16, "", /*plain=*/true};
  if (name != "native") {
    InstructionSet set = v4(name);
    std::string known = "native, x86-64-v3, x86-64-v4", level = set.cpu;
    if (name == level)
      return set;
    for (const Extension &extension : extensions) {
      add(set, extension);
      if (name == level + "+" + extension.name)
        return set;
      known += ", " + level + "+" + extension.name;
    }
    throw Error("--cpu: unknown instruction set '" + name + "'; known: " + known + ", plain");
  }
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  auto has = [&](const char *feature) { return host.lookup(feature); };
  if (!has("avx2") || !has("fma"))
    throw Error("--cpu native: this machine has no AVX2 and FMA, which generated code needs; name another with --cpu x86-64-v3");
  // Code for this machine's pipeline, but of instructions that the check at start covers: a copy on another machine
  // says what is missing instead of dying.
  const bool wide = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && has("avx512cd");
  InstructionSet set = wide ? v4("x86-64-v4") : v3("x86-64-v3");
  for (const Extension &extension : extensions) {
    if (!wide || !has(extension.feature))
      break;
    add(set, extension);
    set.name = set.cpu + "+" + extension.name;
  }
  set.tune = llvm::sys::getHostCPUName().str();
  set.name += " tuned for " + set.tune;
  return set;
}

bool InstructionSet::operator>(const InstructionSet &other) const {
  return std::tie(vectorBytes, amx, bf16) > std::tie(other.vectorBytes, other.amx, other.bf16);
}

} // namespace xfc
