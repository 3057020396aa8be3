// Objects and the runtime into one executable or a library, or objects into one, by lld.
#pragma once

#include "Codegen/ObjectFile.h"
#include <string>

namespace xfc {

// Links objects, group by group, with the runtime that lies beside this compiler. The output appears whole or not
// at all. Throws Error naming what is missing: lld, the C library's start files, libstdc++, or the runtime.
void linkExecutable(const std::vector<std::vector<ObjectFile>> &objects, const std::string &output);
// Links them into a shared and a static library, and puts the C header beside them: `output` DIR/NAME becomes
// DIR/libNAME.so, DIR/libNAME.a and DIR/xfc.h. Both hold the runtime and the C++ library, and show nothing but the
// functions of the header. Returns the files. Throws Error likewise.
std::vector<std::string> linkLibrary(const std::vector<std::vector<ObjectFile>> &objects, const std::string &output);
// Joins one group into one object, whole or not at all. Throws Error where lld is missing or fails.
void linkObject(const std::vector<ObjectFile> &objects, const std::string &output);

} // namespace xfc
