// The only place that knows the order of passes: one table.
#include "Stages.h"
#include "Schedule/Passes.h"
#include "Targets.h"
#include "Transforms/ComputeTypes.h"
#include "Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "plan/Programs.h"
#include "support/Error.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace xfc {
namespace {

// A pass of a stage. A pass that can be turned off has the name that --no-fuse takes.
struct PassEntry {
  Stage stage;
  const char *fusion; // or null
  void (*add)(OpPassManager &manager, const StageOptions &options);
};

template <auto create> void add(OpPassManager &manager, const StageOptions &) { manager.addPass(create()); }
template <auto create> void addToFunctions(OpPassManager &manager, const StageOptions &) {
  manager.addNestedPass<func::FuncOp>(create());
}
void canonicalize(OpPassManager &manager, const StageOptions &) { manager.addPass(createCanonicalizerPass()); }
void mergeEqual(OpPassManager &manager, const StageOptions &) { manager.addPass(createCSEPass()); }

// What the passes may know of the target.
TargetTraits traitsOf(const StageOptions &options) { return makeTarget(options.target)->traits; }

void fuseNormGrad(OpPassManager &manager, const StageOptions &options) {
  manager.addNestedPass<func::FuncOp>(createFuseNormGrad({traitsOf(options).normGradParts}));
}

void fuseCandidates(OpPassManager &manager, const StageOptions &options) {
  const TargetTraits target = traitsOf(options);
  manager.addNestedPass<func::FuncOp>(createFuseCandidates({target.slabUnit, target.enoughSlabs}));
}

void recompute(OpPassManager &manager, const StageOptions &options) {
  if (options.recompute != Recomputation::none)
    manager.addNestedPass<func::FuncOp>(
        createRecompute({options.recompute == Recomputation::cheap ? RecomputeLevel::cheap : RecomputeLevel::most}));
}

// Whether a target lacks a type. One that is no type is left to the pass, which refuses it.
bool lacks(const TargetTraits &target, const std::string &type) {
  llvm::Expected<ComputeTypes> types = ComputeTypes::parse(type);
  if (types)
    return !types->areAmong(target.computeTypes);
  llvm::consumeError(types.takeError());
  return false;
}

// With bf16, sets the compute type of all products. With f32, adds copies of the decoding programs for each type that
// can be chosen when decoding starts, and that the target has.
void setComputeTypes(OpPassManager &manager, const StageOptions &options) {
  const TargetTraits target = traitsOf(options);
  if (options.dtype == DataType::bf16)
    manager.addPass(createSetComputeType({"bf16", {}, target.attentionProducts}));
  else if (options.dtype == DataType::f32)
    for (const std::string &type : options.computeTypes)
      if (!lacks(target, type))
        manager.addPass(createSetComputeType(
            {type,
             {programs::encode, programs::decodeStep, programs::decodeCandidates, programs::decodeRenormalized},
             target.attentionProducts}));
}

void buildOptimizer(OpPassManager &manager, const StageOptions &options) {
  manager.addPass(createBuildOptimizer({options.momentType}));
}

// A program that rounds what it multiplies loses nothing that counts by keeping keys and values in bf16.
void setCacheType(OpPassManager &manager, const StageOptions &options) {
  if (!options.cacheType.empty() && options.cacheType != "f32")
    manager.addPass(createSetCacheType({options.cacheType, /*whereRounded=*/false}));
  else if (options.cacheType.empty() && options.dtype != DataType::f64 &&
           !llvm::is_contained(options.disabled, "fuse-attention"))
    manager.addPass(createSetCacheType({"bf16", /*whereRounded=*/true}));
}

const PassEntry passes[] = {
    {Stage::Fused, nullptr, canonicalize},
    {Stage::Fused, nullptr, mergeEqual},
    {Stage::Fused, "fuse-attention", addToFunctions<createFuseAttention>},
    {Stage::Fused, "fuse-add-norm", addToFunctions<createFuseAddNorm>},
    {Stage::Fused, "fuse-cross-entropy", addToFunctions<createFuseCrossEntropy>},
    {Stage::Fused, "fuse-candidates", fuseCandidates},
    {Stage::Fused, "merge-projections", add<createMergeProjections>},
    {Stage::Differentiated, nullptr, add<createDifferentiate>},
    {Stage::Differentiated, nullptr, buildOptimizer},
    {Stage::Differentiated, nullptr, canonicalize},
    {Stage::Differentiated, nullptr, mergeEqual},
    {Stage::Differentiated, "fuse-loss-gradient", addToFunctions<createFuseLossGradient>},
    {Stage::Differentiated, "fuse-optimizer", add<createFuseOptimizer>},
    {Stage::Differentiated, "fuse-norm-grad", fuseNormGrad},
    {Stage::Differentiated, "fuse-epilogue", addToFunctions<createFuseEpilogue>},
    {Stage::Differentiated, nullptr, mergeEqual},
    // Recomputation follows the last CSE, which would merge the recomputed values with the original ones, and needs the
    // liveness of the final ops.
    {Stage::Differentiated, nullptr, recompute},
    {Stage::Differentiated, nullptr, setComputeTypes},
    {Stage::Differentiated, nullptr, setCacheType},
    // Only keys and values that are kept as they are computed go to the cache without a kernel in between.
    {Stage::Differentiated, "fuse-cache-write", addToFunctions<createFuseCacheWrite>},
    // Weights are packed in the types that products compute in.
    {Stage::Differentiated, "fuse-packing", add<createFusePacking>},
};

using Fail = llvm::function_ref<LogicalResult(const Twine &)>;

// Registers a pipeline whose passes `add(manager, options, fail)` adds.
template <typename Options, typename Add> void registerWithOptions(StringRef name, StringRef summary, Add add) {
  registerPassPipeline(
      name, summary,
      [add](OpPassManager &manager, StringRef text, Fail fail) -> LogicalResult {
        Options options;
        if (failed(options.parseFromString(text)))
          return failure();
        return add(manager, options, fail);
      },
      [](llvm::function_ref<void(const mlir::detail::PassOptions &)> describe) { describe(Options()); });
}

void registerStage(Stage stage, StringRef name, StringRef summary) {
  registerWithOptions<StageOptions>(
      name, summary, [stage](OpPassManager &manager, const StageOptions &options, Fail fail) -> LogicalResult {
        for (const std::string &name : options.disabled)
          if (!llvm::is_contained(fusions(), name))
            return fail("no-fuse: unknown '" + name + "'; known: " + llvm::join(fusions(), ", "));
        try {
          makeTarget(options.target);
        } catch (const Error &error) {
          return fail("target: " + Twine(error.what()));
        }
        addStage(stage, manager, options);
        return success();
      });
}

// The options of scheduling as text: --xfc-schedule="target=sm_90a"
struct SchedulingOptions : PassPipelineOptions<SchedulingOptions> {
  Option<std::string> target{*this, "target",
                             llvm::cl::desc("instruction set or GPU architecture to generate code for; without one, "
                                            "each kernel is one chunk, and nothing is packed")};
  Option<DType> dtype{*this, "dtype", llvm::cl::desc("what the module computes in"), llvm::cl::init(DType::F32),
                      llvm::cl::values(clEnumValN(DType::F32, "f32", "f32"), clEnumValN(DType::F64, "f64", "f64"))};
  Option<bool> wideResidual{*this, "wide-residual",
                            llvm::cl::desc("whether the residual stream stays f32 where other rows are bf16")};
};

// Registers passes for a target as a pipeline with these options.
void registerScheduling(StringRef name, StringRef summary, void (*add)(OpPassManager &, const Target &)) {
  registerWithOptions<SchedulingOptions>(
      name, summary, [add](OpPassManager &manager, const SchedulingOptions &options, Fail fail) -> LogicalResult {
        static const NoTarget none;
        static std::vector<std::unique_ptr<Target>> targets; // which must outlive the passes
        if (options.target.empty()) {
          add(manager, none);
          return success();
        }
        try {
          targets.push_back(makeTarget(options.target, {.type = options.dtype, .wideResidual = options.wideResidual}));
        } catch (const Error &error) {
          return fail("target: " + Twine(error.what()));
        }
        add(manager, *targets.back());
        return success();
      });
}

} // namespace

const std::vector<std::string> &fusions() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const PassEntry &entry : passes)
      if (entry.fusion)
        found.push_back(entry.fusion);
    return found;
  }();
  return names;
}

void addStage(Stage stage, OpPassManager &manager, const StageOptions &options) {
  const TargetTraits target = traitsOf(options);
  for (const PassEntry &entry : passes) {
    const bool left = entry.fusion && (llvm::is_contained(options.disabled, entry.fusion) ||
                                       llvm::is_contained(target.withoutFusions, entry.fusion));
    if (entry.stage == stage && !left)
      entry.add(manager, options);
  }
}

void registerPipelines() {
  registerStage(Stage::Fused, "xfc-fuse-pipeline", "From the imported module to `xfc compile --emit fused`");
  registerStage(Stage::Differentiated, "xfc-differentiate-pipeline",
                "From the output of --xfc-fuse-pipeline to `xfc compile --emit differentiated`");
  registerScheduling("xfc-schedule",
                     "From the output of --xfc-differentiate-pipeline to `xfc compile --emit scheduled`",
                     addSchedulingPasses);
  registerScheduling("xfc-types", "Only the types of rows that a target stores (xfc-assign-types)",
                     [](OpPassManager &manager, const Target &target) { manager.addPass(createAssignTypes(target)); });
  registerScheduling("xfc-kernels", "Only the kernels of the functions' ops, with their code", addKernelPasses);
}

} // namespace xfc
