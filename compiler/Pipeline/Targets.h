// The table of the targets that code is generated for.
#pragma once

#include "Target/Target.h"
#include <memory>
#include <string>

namespace xfc {

// The targets of a platform that --cpu or --cuda-arch names, without native.
std::vector<std::string> targetsOf(Platform platform);
// The target of this name, for example x86-64-v4+amx, sm_90a, or, for CPUs, native: the best one whose features this
// machine has, tuned for it, whose own name is for example "x86-64-v3 tuned for znver3". Throws Error for a name that
// is not known, and for native on a machine without AVX2 and FMA.
std::unique_ptr<Target> makeTarget(Platform platform, const std::string &name, const TargetOptions &options = {});
// The same for a target of any platform.
std::unique_ptr<Target> makeTarget(const std::string &name, const TargetOptions &options = {});
// The platform of a target's name; CPU for a name that is not known.
Platform platformOf(llvm::StringRef name);
// Whether a machine that can run the code of both should prefer `a`, for two targets of a platform.
bool isBetter(const Target &a, const Target &b);

// Adds the dialects of all targets' code.
void addCodeDialects(mlir::DialectRegistry &registry);

} // namespace xfc
