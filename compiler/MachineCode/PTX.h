// Turns kernels for a GPU into PTX text, and PTX into cubins if ptxas is available.
#pragma once

#include "ObjectFile.h"
#include "mlir/IR/BuiltinOps.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xfc::gpu {

// How matrices of f32 are multiplied: by fused multiply-adds, or by tensor cores, which need three products in TF32 for
// one in f32 (GPU/TensorCore.h).
enum class F32Core { FMA, TF32x3 };

// A GPU architecture that code is generated for. Its PTX also runs on every later architecture, unless its name ends in
// "a": then it runs on that architecture alone.
struct Architecture {
  std::string name;              // sm_80: the name for --cuda-arch, LLVM and ptxas
  std::string features;          // for LLVM: the oldest version of PTX that has all instructions emitted for it
  int64_t sharedBytes;           // the most that a block can have
  F32Core f32Core;               // the one that is faster on this architecture
  bool warpgroups = false;       // has products by four warps, copies that arrive at barriers, and clusters of blocks
  std::string core = "m16n8k16"; // what multiplies fragments of bf16 for a warp, of the cores in GPU/TensorCore.cpp
};

// Lowered kernels of a KernelBuilder as a module of PTX. Throws Error on failure, which is a bug in the compiler.
ObjectFile emitPTX(mlir::ModuleOp kernels, const Architecture &architecture);
// The kernels of several modules for the same architecture, in this order, as one module.
std::string joinPTX(llvm::ArrayRef<ObjectFile> modules);

// The path of ptxas, found on PATH or in bin/ of $CUDA_HOME. Empty if it is in neither.
std::optional<std::string> findPtxas();
// Runs `ptxas --version` and returns what it prints. Throws Error if ptxas cannot be run.
std::string versionOf(const std::string &ptxas);
// Compiles PTX to machine code. Throws Error with the messages of ptxas if it fails.
std::vector<uint8_t> assemble(const std::string &ptxas, const std::string &ptx, const Architecture &architecture);

} // namespace xfc::gpu
