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
  int64_t vectorBytes;  // 32 or 64; plain: 16
  std::string tune;     // LLVM's name of the CPU to schedule instructions for; may be empty
  bool plain = false;   // what upstream dialects make of the unfused program, for any x86-64
  bool vnni = false;    // AVX-VNNI or AVX512-VNNI: sums of four products of bytes
  bool bf16 = false;    // AVX512-BF16: products of pairs of bf16, and rounding to it
  bool amx = false;     // tiles of AMX-BF16 and AMX-INT8; has bf16 and vnni too

  // native, x86-64-v3 (AVX2 and FMA), x86-64-v4 (AVX-512), either with +vnni, the latter with +bf16 or +amx, or plain.
  // Throws Error for another name, or for native where this machine has no AVX2.
  static InstructionSet named(const std::string &name);
  // Whether a CPU that has both is better off with this one.
  bool operator>(const InstructionSet &other) const;
};

} // namespace xfc
