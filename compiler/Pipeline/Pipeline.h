// The only place that knows the order of passes: a description through the phases, to objects.
#pragma once

#include "Codegen/ObjectFile.h"
#include "Import/Description.h"
#include "plan/Plan.h"
#include <optional>
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

// The passes `--no-fuse=NAME` can turn off.
const std::vector<std::string> &fusions();
// What `--recompute=LEVEL` can say, from the least.
const std::vector<std::string> &recomputeLevels();

// What code is generated for.
enum class Target { CPU, CUDA };

struct PipelineOptions {
  bool train = true, decode = true;
  std::string dtype = "f32";      // of matrix products: f32, bf16 (all else stays f32), or f64 (all is)
  std::set<std::string> disabled; // of fusions()
  std::string recompute;          // of recomputeLevels(), or empty: every value is kept for the gradients
  std::vector<Target> targets = {Target::CPU};
  std::vector<std::string> cpus = {"native"};     // instruction sets, each becomes an image
  std::vector<std::string> cudaArchs = {"sm_80"}; // architectures of GPUs, each becomes a device image
  std::string dumpDirectory;                      // the module after every pass that changed it
  bool timing = false;                            // a line for each stage and pass on standard error
};

// The program of the first target as text after `phase`: MLIR, or the plan for Scheduled.
std::string emitPhase(const Description &description, const PipelineOptions &options, Phase phase);
// LLVM IR of the first instruction set.
std::string emitLLVM(const Description &description, const PipelineOptions &options);
// PTX of the first architecture.
std::string emitPTX(const Description &description, const PipelineOptions &options);
// The CPU's plan alone, for inspection.
Module planOf(const Description &description, const PipelineOptions &options);
// The objects to link: those of each instruction set, of each architecture of the targets, and of the tables of images.
std::vector<std::vector<ObjectFile>> compileObjects(const Description &description, const PipelineOptions &options);

} // namespace xfc
