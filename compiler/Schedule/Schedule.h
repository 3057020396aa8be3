// Turns a fused xfc module into a plan: kernels, packed weights, and the steps and buffers of each program.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "plan/Plan.h"

namespace xfc {

// What scheduling needs to know about a kernel that a target emitted.
struct KernelInfo {
  Partition partition;
  int64_t scratch = 0;    // bytes per thread; on a GPU, per block
  int64_t threads = 0;    // per GPU block
  int64_t chunkBytes = 0; // of partial sums for the merge kernel, per chunk of chunkRows rows; 0: no merge kernel
  bool resident = false;  // whether a GPU block goes on with further chunks (Kernel::resident)
};

// The small-M variant of a kernel.
struct FewRowsInfo {
  KernelInfo kernel;
  int64_t rows; // the most rows for which it is used
};

// The form of a packed weight: W^T (transposed) or W, rounded to a compute type if one is given, in the target's
// default layout or in its block layout.
struct Packing {
  bool transposed = false;
  std::optional<ComputeType> compute = {};
  bool blocks = false;
};

// What scheduling needs to know about a kernel that packs a weight.
struct PackInfo {
  int64_t bytes = 0;                // size of the packed weight
  int64_t chunks = 1;               // chunks of the pack kernel
  int64_t scratch = 0, threads = 0; // as in KernelInfo
};

// Describes a target to scheduling. It has no state: what it emits goes to the end of `code`, the module in which the
// plan holds its kernels' code (codeOf() in Plan/PlanDialect.h).
class Backend {
public:
  virtual ~Backend() = default;
  // The name by which the target can be found again, which the plan records; empty if it emits no code.
  virtual std::string name() const = 0;
  // Adds the dialects and the interfaces of ops that emitting needs.
  virtual void addDialects(mlir::DialectRegistry & /*registry*/) const {}
  // Whether the kernel of `op` reads or writes a buffer (its operands in order, then its results) as rows of bf16.
  // Those that stay wide for every target (KernelOpInterface) are not asked for.
  virtual bool takesNarrowRows(mlir::Operation * /*op*/, unsigned /*buffer*/) const { return false; }
  // The distance at which the target prefers such rows to begin, in elements: the number of features, or more.
  virtual int64_t strideOf(RowsType rows) const { return rows.getFeatures(); }
  // A suffix that distinguishes the kernel of `op` from kernels of other ops with the same key, and that becomes part
  // of its name. Usually empty.
  virtual std::string variant(mlir::Operation * /*op*/) const { return {}; }
  // Emits the kernel of `op` under `name`. Throws Error if the target has none.
  virtual KernelInfo emit(mlir::Operation *op, llvm::StringRef name, mlir::ModuleOp code) const = 0;
  // Emits the kernel that adds up the partial sums that the kernel of `op` leaves for each chunk of rows.
  virtual KernelInfo emitMerge(mlir::Operation * /*op*/, llvm::StringRef /*name*/, mlir::ModuleOp /*code*/) const {
    return {};
  }
  // Emits a small-M variant of the kernel of `op`, if the target has one: faster for few rows, with the same order of
  // summation.
  virtual std::optional<FewRowsInfo> emitForFewRows(mlir::Operation * /*op*/, llvm::StringRef /*name*/,
                                                    mlir::ModuleOp /*code*/) const {
    return std::nullopt;
  }
  // The packed form in which the kernel of `op` reads this operand, or nothing if it reads the operand as it is.
  virtual std::optional<Packing> packs(mlir::Operation *op, unsigned operand) const = 0;
  // Emits the kernel that packs a weight. Its buffers are the plain weight and the packed one.
  virtual PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name,
                            mlir::ModuleOp code) const = 0;
};

} // namespace xfc
