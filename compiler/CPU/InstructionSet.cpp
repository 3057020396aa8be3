// The known instruction sets.
#include "InstructionSet.h"
#include "support/Error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/X86TargetParser.h"
#include <tuple>

namespace xfc {

static InstructionSet v3(std::string name) {
  return {std::move(name), "x86-64-v3", "", "avx2,fma,bmi2,f16c,movbe", 32, ""};
}

static InstructionSet v4(std::string name) {
  // With LLVM's instruction scheduling for a generic CPU, the micro-kernel's loop would spill one of its accumulators.
  return {std::move(name), "x86-64-v4", "", "avx2,fma,bmi2,f16c,movbe,avx512f,avx512bw,avx512cd,avx512dq,avx512vl", 64,
          "sapphirerapids"};
}

// An extension that some CPUs of a level have, with its features as LLVM and /proc/cpuinfo name them. Within a level,
// each extension implies the ones before it.
struct Extension {
  const char *level, *name;
  std::vector<std::string> features;
  const char *needed;
  bool InstructionSet::*flag;
};
static const Extension extensions[] = {
    {"x86-64-v3", "vnni", {"avxvnni"}, "avx_vnni", &InstructionSet::vnni},
    {"x86-64-v4", "vnni", {"avx512vnni"}, "avx512_vnni", &InstructionSet::vnni},
    {"x86-64-v4", "bf16", {"avx512bf16"}, "avx512_bf16", &InstructionSet::bf16},
    {"x86-64-v4", "amx", {"amx-bf16", "amx-int8"}, "amx_tile,amx_bf16,amx_int8", &InstructionSet::amx},
};

static void add(InstructionSet &set, const Extension &extension) {
  for (const std::string &feature : extension.features)
    set.features += (set.features.empty() ? "+" : ",+") + feature;
  set.needed += std::string(",") + extension.needed;
  set.*extension.flag = true;
}

static constexpr llvm::StringLiteral tuning = " tuned for ";

InstructionSet InstructionSet::named(const std::string &name) {
  if (const auto [base, cpu] = llvm::StringRef(name).split(tuning); !cpu.empty()) {
    if (llvm::X86::parseTuneCPU(cpu) == llvm::X86::CK_None)
      throw Error("--cpu: unknown CPU '" + cpu.str() + "' in '" + name + "'");
    InstructionSet set = named(base.str());
    set.tune = cpu.str();
    set.name = name;
    return set;
  }
  if (name == "plain")
    return {name, "x86-64", "", "", 16, "", /*plain=*/true};
  if (name != "native") {
    std::string known = "native";
    for (auto level : {v3, v4}) {
      InstructionSet set = level(name);
      known += ", " + set.cpu;
      if (name == set.cpu)
        return set;
      for (const Extension &extension : extensions)
        if (extension.level == set.cpu) {
          add(set, extension);
          if (name == set.cpu + "+" + extension.name)
            return set;
          known += ", " + set.cpu + "+" + extension.name;
        }
    }
    throw Error("--cpu: unknown instruction set '" + name + "'; known: " + known + ", plain");
  }
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  auto has = [&](const std::string &feature) { return host.lookup(feature); };
  if (!has("avx2") || !has("fma"))
    throw Error("--cpu native: this machine has no AVX2 and FMA, which generated code needs; name another with --cpu "
                "x86-64-v3");
  // Tune for this machine, but use only instructions that the check at startup covers, so that a copy on another
  // machine reports what is missing instead of crashing.
  const bool wide = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && has("avx512cd");
  InstructionSet set = wide ? v4("x86-64-v4") : v3("x86-64-v3");
  for (const Extension &extension : extensions) {
    if (extension.level != set.cpu)
      continue;
    if (!llvm::all_of(extension.features, has))
      break;
    add(set, extension);
    set.name = set.cpu + "+" + extension.name;
  }
  set.tune = llvm::sys::getHostCPUName().str();
  set.name += tuning.str() + set.tune;
  return set;
}

bool InstructionSet::operator>(const InstructionSet &other) const {
  return std::tie(vectorBytes, amx, bf16, vnni) > std::tie(other.vectorBytes, other.amx, other.bf16, other.vnni);
}

} // namespace xfc
