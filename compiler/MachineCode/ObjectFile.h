// Object files, which the code generators produce and the linker consumes.
#pragma once

#include <vector>

namespace xfc {

using ObjectFile = std::vector<char>; // its contents, in memory

// The format of objects and of what is linked from them.
struct ObjectFormat {
  const char *triple;    // LLVM's name
  const char *baseline;  // LLVM's name of the CPU whose instructions all others have, too
  const char *emulation; // lld's name
  const char *loader;    // loads executables
  const char *libraries; // Debian's name of folders for it
};
// That of executables: of their constants, and of the code of all targets of CPUs.
inline constexpr ObjectFormat executableFormat = {"x86_64-unknown-linux-gnu", "x86-64", "elf_x86_64",
                                                  "/lib64/ld-linux-x86-64.so.2", "x86_64-linux-gnu"};

} // namespace xfc
