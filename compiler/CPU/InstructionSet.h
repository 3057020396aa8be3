// The features of a CPU that kernels depend on.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

struct InstructionSet {
  std::string name;     // as the user writes it and the executable reports it
  std::string cpu;      // LLVM's name
  std::string features; // LLVM's list, may be empty
  std::string needed;   // required features as named in /proc/cpuinfo, separated by commas
  int64_t vectorBytes;  // 32 or 64; plain: 16
  std::string tune;     // LLVM's name of the CPU to schedule instructions for; may be empty
  bool plain = false;   // the unfused program, compiled by upstream passes for any x86-64
  bool vnni = false;    // AVX-VNNI or AVX512-VNNI: sums of four products of bytes
  bool bf16 = false;    // AVX512-BF16: products of pairs of bf16, and rounding to it
  bool amx = false;     // tiles of AMX-BF16 and AMX-INT8; implies bf16 and vnni

  // Accepts native, x86-64-v3 (AVX2 and FMA), x86-64-v4 (AVX-512), either of these with +vnni, the latter also with
  // +bf16 or +amx, and plain; also the names that native gets, such as "x86-64-v3 tuned for znver3". Throws Error for
  // any other name, and for native on a machine without AVX2 and FMA.
  static InstructionSet named(const std::string &name);
  // Whether a CPU that supports both should prefer this one.
  bool operator>(const InstructionSet &other) const;
};

} // namespace xfc
