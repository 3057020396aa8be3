// Kernels for a GPU into PTX text, and PTX into cubins where ptxas is at hand.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xfc::gpu {

// A GPU architecture we generate code for. PTX for one runs on every later one; PTX for an "a" one, on that alone.
struct Architecture {
  std::string name;     // sm_80, as --cuda-arch says it and LLVM and ptxas know it
  std::string features; // LLVM's: the oldest version of PTX that has what we emit for it
  int64_t sharedBytes;  // that a block can have
  bool warpgroups;      // four warps multiply together, copies arrive at barriers, and blocks form clusters

  // Throws Error listing what is known for another name.
  static const Architecture &named(const std::string &name);
  static const std::vector<Architecture> &known(); // oldest first
};

// Kernels of a KernelBuilder, which are lowered to the LLVM dialect in place, as PTX. Throws Error when that fails: a
// defect of ours.
std::string emitPTX(mlir::ModuleOp kernels, const Architecture &architecture);

// Where ptxas is: on PATH, or in bin/ of $CUDA_HOME. Empty where it is not.
std::optional<std::string> findPtxas();
// The machine code ptxas makes of it. Throws Error with what it says if it refuses.
std::vector<uint8_t> assemble(const std::string &ptxas, const std::string &ptx, const Architecture &architecture);

} // namespace xfc::gpu
