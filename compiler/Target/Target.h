// What code is generated for: an instruction set of CPUs, or an architecture of GPUs. Pipeline/Targets.cpp has the
// table of all targets.
#pragma once

#include "Dialect/XFC.h"
#include "MachineCode/ObjectCache.h"
#include "MachineCode/ObjectFile.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Support/Timing.h"
#include "plan/Plan.h"
#include <array>
#include <string>
#include <vector>

namespace xfc {

// The kinds of devices that an executable can contain code for, each for several targets.
enum class Platform { CPU, CUDA };
struct PlatformInfo {
  Platform platform;
  const char *name;     // as --target takes it
  const char *flag;     // the option that chooses targets
  const char *kind;     // what a target is
  const char *machines; // what runs its code
  const char *image;    // the symbols of images (Images.h), to which their numbers are added
  const char *images;   // the symbol of their table
};
extern const std::array<PlatformInfo, 2> platforms;
const PlatformInfo &infoOf(Platform platform);

// A target as far as the passes before scheduling need to know it.
struct TargetTraits {
  std::vector<llvm::StringRef> withoutFusions; // fusions into ops for which it has no kernels or no faster ones
  int64_t normGradParts;                       // ranges of rows over which gradients of a norm's weights are summed
  // How a vocabulary is cut when candidates are chosen: the options of xfc-fuse-candidates.
  int64_t slabUnit = 64, enoughSlabs = 2;
  std::vector<ComputeType> computeTypes; // types that products can round their operands to
  int64_t attentionProducts = 0; // features that a head needs for attention's products to do it, too; 0: they do not
  llvm::StringRef refusedDtype = {}; // the --dtype that it does not support, if any
  llvm::StringRef refusal = {};      // the error message for it
};

// What may be chosen besides a target.
struct TargetOptions {
  DType type = DType::F32;   // what programs compute in
  bool checkBounds = false;  // whether code of CPUs checks each memory access
  bool wideResidual = false; // whether the residual stream stays wide where other rows become narrower
};

// What scheduling needs to know about a kernel that a target emitted.
struct KernelInfo {
  Partition partition;
  int64_t scratch = 0;    // bytes per thread; on a GPU, per block
  int64_t threads = 0;    // per GPU block
  int64_t chunkBytes = 0; // of partial sums, per chunk of chunkRows rows; 0: no reduction follows
  bool resident = false;  // whether a GPU block goes on with further chunks (Kernel::resident)
};

// A small-M variant of a kernel.
struct SmallKernel {
  std::string name;
  KernelInfo kernel;
  int64_t rows; // the most rows for which it is used
};

// Rows of the key set that a kernel reads by its lists of keys.
struct ListedRows {
  unsigned operand;
  int64_t elementBytes, bytes; // of a row
};

// A kernel that another one runs, as it was emitted.
struct KernelBody {
  llvm::StringRef kernel; // its name
  int64_t scratch, threads;
  llvm::SmallVector<ListedRows, 2> listed = {}; // which may be fetched into a cache before it runs
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

// Emits the kernels of a plan, and makes objects of their code. It has no state: kernels go to the end of `code`, the
// module in which the plan holds its kernels' code (codeOf() in Plan/PlanDialect.h).
class Target {
public:
  using Timed = llvm::function_ref<mlir::TimingScope(const std::string &what)>;
  Target(std::string name, TargetTraits traits, const TargetOptions &options = {})
      : name(std::move(name)), traits(std::move(traits)), options(options) {}
  virtual ~Target() = default;

  const std::string name; // by which it can be found again, which the plan records; empty if it emits no code
  const TargetTraits traits;
  const TargetOptions options;

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
  virtual KernelInfo emitReduction(mlir::Operation * /*op*/, llvm::StringRef /*name*/, mlir::ModuleOp /*code*/) const {
    return {};
  }
  // Emits the small-M variants of the kernel of `op`, if the target has some: faster for few rows, each for fewer than
  // the one before it, with the same order of summation. Their names begin with `name`.
  virtual std::vector<SmallKernel> emitSmall(mlir::Operation * /*op*/, llvm::StringRef /*name*/,
                                             mlir::ModuleOp /*code*/) const {
    return {};
  }
  // Whether a persistent kernel can run this kernel of `code`.
  virtual bool canBeBody(llvm::StringRef /*kernel*/, mlir::ModuleOp /*code*/) const { return false; }
  // Emits the persistent kernel that runs these, each of which can be (Kernel::bodies).
  virtual KernelInfo emitPersistent(llvm::ArrayRef<KernelBody> /*bodies*/, llvm::StringRef /*name*/,
                                    mlir::ModuleOp /*code*/) const {
    return {};
  }
  // The packed form in which the kernel of `op` reads this operand, or nothing if it reads the operand as it is.
  virtual std::optional<Packing> packs(mlir::Operation *op, unsigned operand) const = 0;
  // Emits the kernel that packs a weight. Its buffers are the plain weight and the packed one.
  virtual PackInfo emitPack(mlir::RankedTensorType weight, Packing packing, llvm::StringRef name,
                            mlir::ModuleOp code) const = 0;

  // The code as text: LLVM IR, or PTX. Lowers it in place, as objects() does.
  virtual std::string text(mlir::ModuleOp code) const = 0;
  // The objects that define the image `image` (Images.h) of a plan and its code.
  virtual std::vector<ObjectFile> objects(mlir::ModuleOp code, const Module &plan, const std::string &image,
                                          const ObjectCache &cache, Timed timed) const = 0;
};

// No target: each kernel is one chunk, nothing is packed, and no code is generated.
class NoTarget : public Target {
public:
  NoTarget() : Target({}, {.withoutFusions = {}, .normGradParts = 1, .computeTypes = {}}) {}
  KernelInfo emit(mlir::Operation *, llvm::StringRef, mlir::ModuleOp) const override { return {}; }
  std::optional<Packing> packs(mlir::Operation *, unsigned) const override { return std::nullopt; }
  PackInfo emitPack(mlir::RankedTensorType, Packing, llvm::StringRef, mlir::ModuleOp) const override { return {}; }
  std::string text(mlir::ModuleOp) const override { return {}; }
  std::vector<ObjectFile> objects(mlir::ModuleOp, const Module &, const std::string &, const ObjectCache &,
                                  Timed) const override {
    return {};
  }
};

} // namespace xfc
