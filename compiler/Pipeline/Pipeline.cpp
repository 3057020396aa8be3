// The order of passes, phase by phase.
#include "Pipeline.h"
#include "CPU/CPU.h"
#include "CPU/Object.h"
#include "Dialect/XFC.h"
#include "GPU/GPU.h"
#include "Import/Import.h"
#include "Plain/Plain.h"
#include "Schedule/Schedule.h"
#include "Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "support/Error.h"
#include "support/Files.h"
#include <chrono>
#include <functional>

using namespace mlir;

namespace xfc {

const std::vector<PhaseInfo> &phases() {
  static const std::vector<PhaseInfo> all = {
      {Phase::Imported, "imported", "the model as ops, step by step, one function for each program"},
      {Phase::Fused, "fused", "attention, add + norm, projections and the loss fused"},
      {Phase::Differentiated, "differentiated",
       "with gradients, the optimizer, fused epilogues, and the types products multiply in"},
      {Phase::Scheduled, "scheduled", "the plan: kernels, buffers with their lives, and the steps of each program"},
      {Phase::Lowered, "lowered", "the kernels' code as vector, scf and LLVM dialect"},
  };
  return all;
}

namespace {

// The passes of a phase in order; those that can be turned off carry their name.
struct PassEntry {
  const char *name; // of --no-fuse, or null
  std::unique_ptr<Pass> (*create)();
  enum { Everywhere, OnCPU, WithoutGPU } where = Everywhere;
};

const std::vector<PassEntry> &passesOf(Phase phase) {
  static const std::vector<PassEntry> fused = {
      {nullptr, [] { return createCanonicalizerPass(); }},
      {nullptr, [] { return createCSEPass(); }},
      {"fuse-attention", [] { return createFuseAttention(); }},
      {"fuse-add-norm", [] { return createFuseAddNorm(); }},
      {"fuse-cross-entropy", [] { return createFuseCrossEntropy(); }},
      {"fuse-candidates", [] { return createFuseCandidates(); }},
      {"merge-projections", [] { return createMergeProjections(); }},
  };
  static const std::vector<PassEntry> differentiated = {
      {nullptr, [] { return createDifferentiate(); }},
      {nullptr, [] { return createBuildOptimizer(); }},
      {nullptr, [] { return createCanonicalizerPass(); }},
      {nullptr, [] { return createCSEPass(); }},
      {"fuse-loss-gradient", [] { return createFuseLossGradient(); }},
      {"fuse-optimizer", [] { return createFuseOptimizer(); }},
      {"fuse-packing", [] { return createFusePacking(); },
       PassEntry::OnCPU}, // a GPU's kernels read f32 weights where they are
      // Where both are targets, their kernels can be compared (selfcheck --kernels).
      {"fuse-norm-grad", [] { return createFuseNormGrad(); }, PassEntry::WithoutGPU},
      {"fuse-epilogue", [] { return createFuseEpilogue(); }},
      {nullptr, [] { return createCSEPass(); }},
  };
  static const std::vector<PassEntry> none;
  return phase == Phase::Fused ? fused : phase == Phase::Differentiated ? differentiated : none;
}

class Compilation {
public:
  Compilation(const Description &description, const PipelineOptions &options)
      : description(description), options(options), context(MLIRContext::Threading::DISABLED) {
    if (llvm::is_contained(options.targets, Target::CUDA)) {
      if (options.dtype == "f64")
        throw Error("--dtype f64: there is no CUDA code in f64; use --dtype f32 or bf16, or --target cpu");
      for (const std::string &arch : options.cudaArchs)
        gpu::Architecture::named(arch);
    }
    context.loadDialect<XFCDialect, func::FuncDialect>();
    timed("import",
          [&] { module = importModel(description, {options.train, options.decode, options.dtype == "f64"}, context); });
  }

  // Runs the passes up to and including `phase` for a target. Those before targets part are run once.
  void runTo(Phase phase, Target target) {
    if (phase >= Phase::Fused) {
      if (!common) {
        runPasses(Phase::Fused, target);
        common = module->clone();
      } else {
        module = common->clone();
      }
    }
    if (phase >= Phase::Differentiated) {
      runPasses(Phase::Differentiated, target);
      setComputeTypes(target);
    }
  }

  ModuleOp operator*() { return *module; }

  std::unique_ptr<ImageBackend> backendFor(const InstructionSet &set) {
    const DType type = options.dtype == "f64" ? DType::F64 : DType::F32;
    if (set.plain)
      return std::make_unique<PlainBackend>(context, set, type);
    return std::make_unique<CPUBackend>(context, set, type);
  }
  // Of the first instruction set.
  std::unique_ptr<ImageBackend> firstBackend() { return backendFor(InstructionSet::named(options.cpus.front())); }

  GPUBackend gpuBackend(const std::string &arch) { return GPUBackend(context, gpu::Architecture::named(arch)); }

  // From here on work is spread over all cores. Before, starting threads would cost more than it saves.
  void useThreads() { context.enableMultithreading(); }

  // Schedules for one backend, which then holds the kernels.
  Module scheduleFor(Backend &backend) {
    Module plan;
    timed("schedule", [&] { plan = schedule(*module, description, backend); });
    plan.compute = options.dtype;
    return plan;
  }

  template <typename Work> void timed(const std::string &what, Work work) {
    auto begin = std::chrono::steady_clock::now();
    work();
    if (options.timing)
      std::fprintf(stderr, "%8.3f s  %s\n",
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), what.c_str());
  }

private:
  void runPasses(Phase phase, Target target) {
    const bool forGPU = target == Target::CUDA, withGPU = forGPU || llvm::is_contained(options.targets, Target::CUDA);
    for (const PassEntry &entry : passesOf(phase)) {
      if (entry.name && options.disabled.count(entry.name))
        continue;
      if (entry.where == PassEntry::Everywhere || !(entry.where == PassEntry::OnCPU ? forGPU : withGPU))
        runPass(entry.create());
    }
    // At the very end: CSE would merge what is computed again with the first time, and the liveness is that of the
    // final ops.
    if (phase == Phase::Differentiated && !options.recompute.empty())
      runPass(createRecompute(
          {options.recompute == recomputeLevels().front() ? RecomputeLevel::cheap : RecomputeLevel::most}));
  }

  // All products in the type asked for; those of f32 that decode also in each that can be chosen when it starts.
  void setComputeTypes(Target target) {
    const bool plain = target == Target::CPU && llvm::any_of(options.cpus, [](const std::string &cpu) {
                         return InstructionSet::named(cpu).plain;
                       });
    if (options.dtype == "bf16") {
      if (plain)
        throw Error("--dtype bf16: plain code multiplies in f32 or f64; use --dtype f32, or another --cpu");
      runPass(createSetComputeType({ComputeType::bf16, {}, target == Target::CUDA}));
    } else if (options.dtype == "f32" && !plain && module->lookupSymbol("decode_step")) {
      for (ComputeType type : {ComputeType::bf16, ComputeType::int8})
        if (target == Target::CPU || type != ComputeType::int8) // whose products a GPU's kernels do not have
          runPass(createSetComputeType({type, {"encode", "decode_step", "decode_candidates"}, target == Target::CUDA}));
    }
  }

  void runPass(std::unique_ptr<Pass> pass) {
    PassManager manager(&context, ModuleOp::getOperationName(), OpPassManager::Nesting::Implicit);
    std::string name = pass->getArgument().str();
    manager.addPass(std::move(pass));
    if (!options.dumpDirectory.empty())
      dumpBefore();
    timed(name, [&] {
      if (failed(manager.run(*module)))
        throw Error("compile: the pass " + name + " failed; see the message above");
    });
    if (!options.dumpDirectory.empty())
      dumpAfter(name);
  }

  std::string text() {
    std::string result;
    llvm::raw_string_ostream(result) << **this;
    return result;
  }
  void dumpBefore() {
    if (dumps++ == 0)
      writeDump("imported", last = text());
  }
  void dumpAfter(const std::string &pass) {
    if (std::string now = text(); now != last)
      writeDump(pass, last = std::move(now));
  }
  void writeDump(const std::string &name, const std::string &contents);

  const Description &description;
  const PipelineOptions &options;
  MLIRContext context;
  OwningOpRef<ModuleOp> module, common; // `common` is the module where targets part
  int dumps = 0, written = 0;
  std::string last;
};

void Compilation::writeDump(const std::string &name, const std::string &contents) {
  makeFolder(options.dumpDirectory);
  char number[16];
  std::snprintf(number, sizeof number, "%02d-", written++);
  writeFile(options.dumpDirectory + "/" + number + name + ".mlir", contents);
}

} // namespace

const std::vector<std::string> &dtypes() {
  static const std::vector<std::string> names = {"f32", "bf16", "f64"};
  return names;
}

const std::vector<std::string> &fusions() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (Phase phase : {Phase::Fused, Phase::Differentiated})
      for (const PassEntry &entry : passesOf(phase))
        if (entry.name)
          found.push_back(entry.name);
    return found;
  }();
  return names;
}

const std::vector<std::string> &recomputeLevels() {
  static const std::vector<std::string> names = {"cheap", "most"};
  return names;
}

std::string emitPhase(const Description &description, const PipelineOptions &options, Phase phase) {
  Compilation compilation(description, options);
  const Target target = options.targets.front();
  compilation.runTo(phase, target);
  if (phase < Phase::Scheduled) {
    std::string text;
    llvm::raw_string_ostream(text) << *compilation;
    return text;
  }
  auto textOf = [&](auto &&backend) {
    Module plan = compilation.scheduleFor(backend);
    return phase == Phase::Scheduled ? print(plan) : backend.print();
  };
  return target == Target::CPU ? textOf(*compilation.firstBackend())
                               : textOf(compilation.gpuBackend(options.cudaArchs.front()));
}

std::string emitLLVM(const Description &description, const PipelineOptions &options) {
  Compilation compilation(description, options);
  compilation.runTo(Phase::Lowered, Target::CPU);
  std::unique_ptr<ImageBackend> backend = compilation.firstBackend();
  compilation.scheduleFor(*backend);
  return backend->llvm();
}

std::string emitPTX(const Description &description, const PipelineOptions &options) {
  Compilation compilation(description, options);
  compilation.runTo(Phase::Lowered, Target::CUDA);
  GPUBackend backend = compilation.gpuBackend(options.cudaArchs.front());
  compilation.scheduleFor(backend);
  return backend.ptx();
}

Module planOf(const Description &description, const PipelineOptions &options) {
  Compilation compilation(description, options);
  compilation.runTo(Phase::Scheduled, Target::CPU);
  std::unique_ptr<ImageBackend> backend = compilation.firstBackend();
  return compilation.scheduleFor(*backend);
}

std::vector<std::vector<ObjectFile>> compileObjects(const Description &description, const PipelineOptions &options) {
  Compilation compilation(description, options);
  std::vector<std::vector<ObjectFile>> objects;
  std::vector<std::string> images, deviceImages;
  if (llvm::is_contained(options.targets, Target::CPU)) {
    compilation.runTo(Phase::Lowered, Target::CPU);
    compilation.useThreads();
    // The best first: the engine takes the first image this CPU can run.
    std::vector<InstructionSet> sets;
    for (const std::string &cpu : options.cpus)
      sets.push_back(InstructionSet::named(cpu));
    llvm::stable_sort(sets, std::greater<>());
    for (const InstructionSet &set : sets) {
      std::unique_ptr<ImageBackend> backend = compilation.backendFor(set);
      Module plan = compilation.scheduleFor(*backend);
      std::string suffix = std::to_string(images.size());
      compilation.timed("machine code for " + set.name, [&] { objects.push_back(backend->objects(plan, suffix)); });
      images.push_back("xfc_image_" + suffix);
    }
  }
  if (llvm::is_contained(options.targets, Target::CUDA)) {
    compilation.runTo(Phase::Lowered, Target::CUDA);
    std::vector<const gpu::Architecture *> archs;
    for (const std::string &arch : options.cudaArchs)
      archs.push_back(&gpu::Architecture::named(arch));
    llvm::stable_sort(archs, std::greater<>()); // the table of them has the newest last
    const std::optional<std::string> ptxas = gpu::findPtxas();
    if (!ptxas && options.timing)
      std::fprintf(stderr, "           ptxas was not found: the GPU's driver will compile the PTX when it is loaded\n");
    for (const gpu::Architecture *arch : archs) {
      GPUBackend backend = compilation.gpuBackend(arch->name);
      Module plan = compilation.scheduleFor(backend);
      DeviceCode code{arch->name, {}, {}};
      compilation.timed("PTX for " + arch->name, [&] { code.ptx = backend.ptx(); });
      if (ptxas)
        compilation.timed("cubin for " + arch->name, [&] { code.cubin = gpu::assemble(*ptxas, code.ptx, *arch); });
      deviceImages.push_back("xfc_device_image_" + std::to_string(deviceImages.size()));
      objects.push_back({emitDeviceImage(code, plan, deviceImages.back())});
    }
  }
  objects.push_back({emitImageTables(images, deviceImages)});
  return objects;
}

} // namespace xfc
