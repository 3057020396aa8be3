// A module as Import/ makes it through the stages, to text of any of them or to objects.
#pragma once

#include "Codegen/ObjectFile.h"
#include "Stages.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/Timing.h"
#include "plan/Plan.h"
#include <set>
#include <string>
#include <vector>

namespace xfc {

// Where compilation can be looked at, in order. `xfc phases` lists them, `--emit` stops after one.
enum class Phase { Imported, Fused, Differentiated, Scheduled, Lowered };
struct PhaseInfo {
  Phase phase;
  const char *name, *summary;
};
const std::vector<PhaseInfo> &phases();

// What `--dtype` takes.
const std::vector<std::string> &dtypes();
// What `--recompute=LEVEL` can say, from the least.
const std::vector<std::string> &recomputeLevels();

// What code is generated for.
enum class Target { CPU, CUDA };

struct PipelineOptions {
  std::string dtype = "f32";      // of dtypes()
  std::set<std::string> disabled; // of fusions()
  std::string recompute;          // of recomputeLevels(), or empty: every value is kept for the gradients
  std::vector<Target> targets = {Target::CPU};
  std::vector<std::string> cpus = {"native"};     // instruction sets, each becomes an image
  std::vector<std::string> cudaArchs = {"sm_80"}; // architectures of GPUs, each becomes a device image
  std::string dumpDirectory;                      // the module after every pass that changed it, and what failed
  std::string cacheDirectory;                     // kernels' objects, for the next time; empty: nowhere
  bool checkBounds = false;                       // whether the CPU's code checks each access to memory
  mlir::TimingScope *timing = nullptr;            // measures stages and passes; may be null
};

// What follows takes a module as Import/ makes it, and changes a copy. Throws Error for options that do not go together
// and, after diagnostics, for what the compiler cannot do.

// The programs of the first target as text after `phase`: a module, or the plan for Scheduled.
std::string emitPhase(mlir::ModuleOp model, const PipelineOptions &options, Phase phase);
// LLVM IR of the first instruction set.
std::string emitLLVM(mlir::ModuleOp model, const PipelineOptions &options);
// PTX of the first architecture.
std::string emitPTX(mlir::ModuleOp model, const PipelineOptions &options);
// The plan of the first target alone, for inspection.
Module planOf(mlir::ModuleOp model, const PipelineOptions &options);
// The objects to link: those of each instruction set, of each architecture of the targets, and of the tables of images.
std::vector<std::vector<ObjectFile>> compileObjects(mlir::ModuleOp model, const PipelineOptions &options);

} // namespace xfc
