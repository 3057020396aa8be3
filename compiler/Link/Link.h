// Links objects and the runtime into an executable or a library, or objects into one object, using lld.
#pragma once

#include "MachineCode/ObjectFile.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/raw_ostream.h"
#include <string>

namespace xfc {

// lld as a part of this program, in place of one that is installed: a function that takes lld's command line, whose
// first word is its name, writes what it has to say, and returns whether it succeeded.
using ContainedLinker = bool (*)(llvm::ArrayRef<const char *> arguments, llvm::raw_ostream &messages);
extern ContainedLinker containedLinker; // null in a program without lld

// Links groups of objects with the runtime that is installed beside this compiler. The output is renamed into place
// atomically. Throws Error naming what is missing: lld, the C library's start files, libstdc++, or the runtime.
void linkExecutable(const std::vector<std::vector<ObjectFile>> &objects, const std::string &output);
// Links them into a shared and a static library, and puts the C header beside them: `output` DIR/NAME becomes
// DIR/libNAME.so, DIR/libNAME.a and DIR/xfc.h. Both libraries contain the runtime and the C++ library, and export only
// the functions of the header. Returns the files. Throws Error as above.
std::vector<std::string> linkLibrary(const std::vector<std::vector<ObjectFile>> &objects, const std::string &output);
// Combines one group into one object, which is renamed into place atomically. Throws Error if lld is missing or fails.
void linkObject(const std::vector<ObjectFile> &objects, const std::string &output);
// Why this executable or library cannot be loaded on this machine, whose C library may be older than the one that it
// was linked with; "" if it can.
std::string whyNotHere(const std::string &file);

} // namespace xfc
