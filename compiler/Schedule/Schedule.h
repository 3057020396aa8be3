// A fused xfc module into a plan: kernels, packed weights, and for each program its steps and buffers.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "plan/Plan.h"

namespace xfc {

// What scheduling needs to know of a target. An implementation emits each kernel once, when it is asked for.
class Backend {
public:
  struct KernelInfo {
    Partition partition;
    int64_t scratch = 0; // bytes a thread; on a GPU, a block
    int64_t threads = 0; // of a GPU's block
    int64_t chunkBytes =
        0; // what it leaves to the kernel that merges, for each chunk of a batch of more than chunkRows rows
  };
  // A packed weight: of W^T (transposed) or W, rounded to a compute type if there is one, in rows or in a target's
  // blocks.
  struct Packing {
    bool transposed = false;
    std::optional<ComputeType> compute = {};
    bool blocks = false;
  };
  struct PackInfo {
    int64_t bytes = 0;                // of the packed weight
    int64_t chunks = 1;               // of the pack kernel
    int64_t scratch = 0, threads = 0; // as a kernel's
  };
  virtual ~Backend() = default;
  // What tells the kernel of `op` from those of other ops with its key, and is part of its name; mostly nothing.
  virtual std::string variant(mlir::Operation * /*op*/) const { return {}; }
  // Emits the kernel of `op` under `name`.
  virtual KernelInfo emit(mlir::Operation *op, llvm::StringRef name) = 0;
  // Emits the kernel that merges.
  virtual KernelInfo emitMerge(mlir::Operation * /*op*/, llvm::StringRef /*name*/) { return {}; }
  // Emits a second kernel of `op`, where there is one that is faster for few rows and adds in the same order.
  struct FewRowsInfo {
    KernelInfo kernel;
    int64_t rows; // up to which it is
  };
  virtual std::optional<FewRowsInfo> emitForFewRows(mlir::Operation * /*op*/, llvm::StringRef /*name*/) {
    return std::nullopt;
  }
  // The packed form in which `op` reads its operand, if it does.
  virtual std::optional<Packing> packs(mlir::Operation *op, unsigned operand) const = 0;
  // Emits the kernel that packs a weight: buffers are the plain weight and the packed one.
  virtual PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name) = 0;
};

// The module says what its model is (xfc::attr::model), and every op of its functions must be a kernel or a view.
// Throws Error naming the op otherwise: a defect of ours, or a module that was put together by hand.
Module schedule(mlir::ModuleOp module, Backend &backend);

} // namespace xfc
