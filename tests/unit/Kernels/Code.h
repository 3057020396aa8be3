// The interface of a device in the tests of kernels: an op's kernels, compiled for the device and run on host memory.
#pragma once

#include "KernelTest.h"
#include "MachineCode/ObjectFile.h"
#include "Target/Target.h"
#include "plan/Plan.h"

namespace xfc::test {

// Memory that a kernel sees: the part it may access, followed by guards.
struct Block {
  char *data = nullptr; // cache-line aligned
  int64_t bytes = 0;
};

// The entries for an op in an image for CPUs: its kernel, and the kernels that pack its weights, which are in the order
// of Code::packings.
struct HostKernels {
  KernelInfo info;
  xfc_kernel kernel = nullptr;
  std::vector<xfc_kernel> pack;
  std::vector<int64_t> packChunks;
};

class Code {
public:
  // A weight that an operand reads in packed form. For an optimizer, `operand` is 2 x the index in options.weights,
  // plus 1 if the packed copy is transposed.
  struct Packing {
    unsigned operand;
    int64_t bytes;
  };
  virtual ~Code() = default;
  std::vector<Packing> packings;
  virtual void pack(size_t packing, Block weight, Block packed) = 0;
  // Runs all chunks of a call. `blocks` are the call's buffers; `tensors` is how many it takes one by one.
  virtual void run(const Batch &batch, const xfc_call &call, llvm::ArrayRef<Block> blocks, size_t tensors) = 0;
  // As long as this object lives; empty on other devices.
  virtual HostKernels hostKernels() const { return {}; }
};

mlir::MLIRContext &context();
// LLVM's name of a CPU with fewer instructions than this one, as the environment variable XFC_TEST_CPU gives it, or
// null. Kernels are compiled for it, so that this machine shows what the tests do on others.
const char *lesserCPU();
// Throw std::runtime_error if the op has no kernel.
std::unique_ptr<Code> compileForCPU(mlir::Operation *op, mlir::Type element, const Options &options);
std::unique_ptr<Code> compileForGPU(mlir::Operation *op, const std::string &arch);

// What `compile` makes of emitted kernels; `parts` is all else that this depends on. It is kept in the folder that the
// environment variable XFC_TEST_CACHE names, if it is set, so that a change of the compiler costs only the kernels that
// it emits or compiles differently.
ObjectFile keptOr(mlir::ModuleOp kernels, llvm::ArrayRef<llvm::StringRef> parts,
                  llvm::function_ref<ObjectFile()> compile);

// Cache-line aligned memory with a guard pattern after `size` bytes.
struct GuardedBytes {
  explicit GuardedBytes(int64_t size) : bytes(size + 128, static_cast<char>(0xff)), size(size) {}
  char *data() { return reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64); }
  Block block() { return {data(), static_cast<int64_t>(bytes.data() + bytes.size() - data())}; }
  bool guarded() {
    return std::all_of(data() + size, bytes.data() + bytes.size(), [](char c) { return c == static_cast<char>(0xff); });
  }
  std::vector<char> bytes;
  int64_t size;
};

// How many chunks a kernel's work is divided into if there are `surplus` additional rows and sequences.
inline int64_t chunksOf(const Partition &partition, const xfc_call &call, int64_t surplus = 0) {
  int64_t count = 1;
  switch (partition.unit) {
  case Partition::Unit::One:
    break;
  case Partition::Unit::Rows:
    count = call.rows->rows + surplus;
    break;
  case Partition::Unit::KeyRows:
    count = call.key_rows->rows + surplus;
    break;
  case Partition::Unit::Sequences:
    count = call.rows->sequences + surplus;
    break;
  case Partition::Unit::Elements:
    count = call.elements;
    break;
  }
  return (count + partition.per - 1) / partition.per * partition.times;
}

} // namespace xfc::test
