// Bounds checks of every memory access, for `--check-bounds`.
#pragma once

namespace llvm {
class Module;
}

namespace xfc {

// Inserts a call to a check (xfc/bounds.h) before each load and store of optimized kernels. Accesses to a function's
// own stack and to constants are not checked. Throws Error for an intrinsic that accesses memory in a way this pass
// does not know.
void checkBounds(llvm::Module &module);

} // namespace xfc
