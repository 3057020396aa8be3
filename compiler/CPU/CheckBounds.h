// Checks of every access to memory, for `--check-bounds`.
#pragma once

namespace llvm {
class Module;
}

namespace xfc {

// Puts a call (xfc/bounds.h) before each load and store of optimized kernels. Accesses to a function's own stack and to
// constants are left alone. Throws Error for an intrinsic that reads or writes memory in a way that is not known here.
void checkBounds(llvm::Module &module);

} // namespace xfc
