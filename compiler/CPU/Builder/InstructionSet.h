// What CPUs kernels can be generated for.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

struct InstructionSet {
  std::string name;     // as the user writes it and the executable reports it
  std::string cpu;      // LLVM's name
  std::string features; // LLVM's list, may be empty
  std::string needed;   // required features as named in /proc/cpuinfo, separated by commas
  int64_t vectorBytes;  // 16, 32 or 64
  std::string tune;     // LLVM's name of the CPU to schedule instructions for; may be empty
  bool vnni = false;    // AVX-VNNI or AVX512-VNNI: sums of four products of bytes
  bool bf16 = false;    // AVX512-BF16: products of pairs of bf16, and rounding to it
  bool amx = false;     // tiles of AMX-BF16 and AMX-INT8; implies bf16 and vnni
};

} // namespace xfc
