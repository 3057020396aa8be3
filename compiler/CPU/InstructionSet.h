// What a CPU has, as kernels need to know it.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

struct InstructionSet {
  std::string name;     // as the user says it and the executable reports it
  std::string cpu;      // LLVM's name
  std::string features; // LLVM's list, may be empty
  std::string needed;   // names of /proc/cpuinfo, separated by commas, without which it does not run
  int64_t vectorBytes;  // 32 or 64
  std::string tune;     // LLVM's name of the CPU to schedule instructions for; may be empty

  // native, x86-64-v3 (AVX2 and FMA) or x86-64-v4 (AVX-512). Throws Error for another name, or where this
  // machine has no AVX2.
  static InstructionSet named(const std::string &name);
};

} // namespace xfc
