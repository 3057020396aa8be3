// Takes a module as Import/ creates it through the stages, to the text of any stage or to objects. A plan, which
// `--emit scheduled` printed, continues from there.
#pragma once

#include "MachineCode/ObjectFile.h"
#include "Stages.h"
#include "Target/Target.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/Timing.h"
#include "plan/Plan.h"
#include <set>
#include <string>
#include <vector>

namespace xfc {

struct PassHistory;

// The phases after which the program can be inspected, in order. `xfc phases` lists them; `--emit` stops after one.
enum class Phase { Imported, Fused, Differentiated, Scheduled, Lowered };
struct PhaseInfo {
  Phase phase;
  const char *name, *summary;
};
const std::vector<PhaseInfo> &phases();

// The values of `--dtype`.
const std::vector<std::string> &dtypes();
// The values of `--residual`.
const std::vector<std::string> &residualTypes();
// The values of `--cache-type`, starting with the one that narrows nothing.
const std::vector<std::string> &cacheTypes();
// The values of `--moment-type`, starting with the one that changes nothing.
const std::vector<std::string> &momentTypes();
// The levels of `--recompute=LEVEL`, starting with the one that recomputes least.
const std::vector<std::string> &recomputeLevels();

// Targets of a platform, by name (Targets.h).
struct PlatformTargets {
  Platform platform;
  std::vector<std::string> names;
};

struct PipelineOptions {
  std::string dtype = "f32"; // one of dtypes()
  // Types that decoding in f32 can choose besides (Transforms/ComputeTypes.h); empty: defaultComputeTypes(), as far as
  // the targets have them.
  std::vector<std::string> computeTypes;
  // The type in which the residual stream is stored if the dtype is bf16 and the target stores rows in bf16: one of
  // residualTypes(), or empty for bf16.
  std::string residual;
  std::string momentType = "f32"; // in which optimizers keep the moments of gradients: one of momentTypes()
  // The type in which decoding keeps keys and values: one of cacheTypes(), or empty for bf16 in the programs whose
  // products round their operands, and f32 in the others.
  std::string cacheType;
  std::set<std::string> disabled; // names from fusions()
  std::string recompute;          // one of recomputeLevels(); empty: every value is kept for the gradients
  std::vector<PlatformTargets> targets = {{Platform::CPU, {"native"}}}; // each target becomes an image
  std::string dumpDirectory;  // receives the module after every pass that changes it, and a reproducer; empty: none
  std::string cacheDirectory; // caches the kernels' objects; empty: no cache
  bool checkBounds = false;   // whether CPU code checks each memory access
  mlir::TimingScope *timing = nullptr; // measures stages and passes; may be null
  PassHistory *history = nullptr;      // receives what each pass changes, in a context without threads; may be null
};

// The functions below take a module as Import/ creates it, and change a copy. They throw Error for incompatible options
// and, after diagnostics, for anything the compiler cannot compile.

// Whether the module is a plan.
bool isPlan(mlir::ModuleOp module);
// Sets the target and the dtype to those of a plan; throws Error if it has no code, or code for an unknown target.
void takeFromPlan(PipelineOptions &options, mlir::ModuleOp plan);
// Adds the dialects of plans and of their code.
void addPlanDialects(mlir::DialectRegistry &registry);

// Whether the file is an executable or a shared library.
bool isExecutable(const std::string &file);
// The plan of an executable for the best of its targets of a platform. Throws Error if it has none.
Module planIn(const std::string &executable, Platform platform);

// The first target's programs as text after `phase`: a module, the plan for Scheduled, or the kernels for Lowered.
std::string emitPhase(mlir::ModuleOp model, const PipelineOptions &options, Phase phase);
// The code of the first target of a platform: LLVM IR, or PTX.
std::string emitCode(mlir::ModuleOp model, const PipelineOptions &options, Platform platform);
// The plan of the first target alone, for inspection.
Module planOf(mlir::ModuleOp model, const PipelineOptions &options);
// The objects to link: a group for each target, and one for the tables of images.
std::vector<std::vector<ObjectFile>> compileObjects(mlir::ModuleOp model, const PipelineOptions &options);

} // namespace xfc
