// The instruction sets we know.
#include "InstructionSet.h"
#include "core/Error.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

namespace xfc {

static const char *const v3Needs = "avx2,fma,bmi2,f16c,movbe";
static const char *const v4Needs = "avx2,fma,bmi2,f16c,movbe,avx512f,avx512bw,avx512cd,avx512dq,avx512vl";

InstructionSet InstructionSet::named(const std::string &name) {
  if (name == "x86-64-v3")
    return {name, name, "", v3Needs, 32, ""};
  // In LLVM's order of instructions for no CPU in particular, the micro-kernel's loop keeps one of its sums on the stack.
  if (name == "x86-64-v4")
    return {name, name, "", v4Needs, 64, "sapphirerapids"};
  if (name == "plain")
    return {name, "x86-64", "", "", 16, "", /*plain=*/true};
  if (name != "native")
    throw Error("--cpu: unknown instruction set '" + name + "'; known: native, x86-64-v3, x86-64-v4, plain");
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  auto has = [&](const char *feature) { return host.lookup(feature); };
  if (!has("avx2") || !has("fma"))
    throw Error("--cpu native: this machine has no AVX2 and FMA, which generated code needs; name another with --cpu x86-64-v3");
  const bool wide = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && has("avx512cd");
  // Code for this machine's pipeline, but of instructions that the check at start covers: a copy on another machine
  // says what is missing instead of dying.
  std::string cpu = llvm::sys::getHostCPUName().str();
  std::string level = wide ? "x86-64-v4" : "x86-64-v3";
  return {level + " tuned for " + cpu, level, "", wide ? v4Needs : v3Needs, wide ? 64 : 32, cpu};
}

} // namespace xfc
