// Takes a module through the stages and, for each image of each target, through scheduling to code.
#include "Pipeline.h"
#include "CPU/CPU.h"
#include "CPU/Object.h"
#include "GPU/GPU.h"
#include "Import/Import.h"
#include "Plain/Plain.h"
#include "Schedule/Passes.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "support/Error.h"
#include "support/Files.h"

using namespace mlir;

namespace xfc {

const std::vector<PhaseInfo> &phases() {
  static const std::vector<PhaseInfo> all = {
      {Phase::Imported, "imported", "the model as ops, step by step, one function for each program"},
      {Phase::Fused, "fused", "attention, add + norm, projections and the loss fused"},
      {Phase::Differentiated, "differentiated",
       "with gradients, the optimizer, fused epilogues, and the compute types of products"},
      {Phase::Scheduled, "scheduled",
       "the plan: kernels, buffers with their live ranges, and the steps of each program"},
      {Phase::Lowered, "lowered", "the kernels' code as vector, scf and LLVM dialect"},
  };
  return all;
}

const std::vector<std::string> &dtypes() {
  static const std::vector<std::string> names = {"f32", "bf16", "f64"};
  return names;
}

const std::vector<std::string> &recomputeLevels() {
  static const std::vector<std::string> names = {"cheap", "most"};
  return names;
}

namespace {

// The kernels for one instruction set or GPU architecture, and the code generated from them.
class Image {
public:
  using Timed = llvm::function_ref<TimingScope(const std::string &what)>;
  virtual ~Image() = default;
  virtual Backend &backend() = 0;
  // The kernels as MLIR.
  virtual std::string kernels() = 0;
  // The kernels as text for the target: LLVM IR, or PTX.
  virtual std::string code() = 0;
  // The objects that define the image with this number among the images of its target.
  virtual std::vector<ObjectFile> objects(const Module &plan, const std::string &number, Timed timed) = 0;
};

class CPUImage : public Image {
public:
  CPUImage(std::unique_ptr<ImageBackend> backend, std::string name, const ObjectCache &cache)
      : generator(std::move(backend)), name(std::move(name)), cache(cache) {}
  Backend &backend() override { return *generator; }
  std::string kernels() override { return generator->print(); }
  std::string code() override { return generator->llvm(); }
  std::vector<ObjectFile> objects(const Module &plan, const std::string &number, Timed timed) override {
    TimingScope timing = timed("machine code for " + name);
    return generator->objects(plan, number, cache);
  }

private:
  std::unique_ptr<ImageBackend> generator;
  std::string name;
  const ObjectCache &cache;
};

class GPUImage : public Image {
public:
  GPUImage(MLIRContext &context, const gpu::Architecture &arch) : generator(context, arch), arch(arch) {}
  Backend &backend() override { return generator; }
  std::string kernels() override { return generator.print(); }
  std::string code() override { return generator.ptx(); }
  std::vector<ObjectFile> objects(const Module &plan, const std::string &number, Timed timed) override {
    DeviceCode code{arch.name, {}, {}};
    {
      TimingScope timing = timed("PTX for " + arch.name);
      code.ptx = generator.ptx();
    }
    // Without ptxas, the GPU's driver compiles the PTX when it is loaded.
    if (const std::optional<std::string> ptxas = gpu::findPtxas()) {
      TimingScope timing = timed("cubin for " + arch.name);
      code.cubin = gpu::assemble(*ptxas, code.ptx, arch);
    }
    return {emitDeviceImage(code, plan, "xfc_device_image_" + number)};
  }

private:
  GPUBackend generator;
  const gpu::Architecture &arch;
};

class Compilation {
public:
  Compilation(ModuleOp model, const PipelineOptions &options)
      : options(options), context(*model.getContext()), model(model), cache(options.cacheDirectory) {
    for (Target target : options.targets)
      if (const TargetTraits &traits = traitsOf(passTarget(target)); options.dtype == traits.refusedDtype)
        throw Error("--dtype " + options.dtype + ": " + traits.refusal.str());
    if (has(Target::CUDA))
      for (const std::string &arch : options.cudaArchs)
        gpu::Architecture::named(arch);
    if (!options.dumpDirectory.empty()) {
      makeFolder(options.dumpDirectory);
      writeFile(options.dumpDirectory + "/imported.mlir", printModule(model));
    }
  }

  // The module after the passes of a phase.
  OwningOpRef<ModuleOp> moduleAfter(Phase phase, Target target) {
    StageOptions stage;
    stage.target = passTarget(target);
    stage.dtype = options.dtype == "f64" ? DataType::f64 : options.dtype == "bf16" ? DataType::bf16 : DataType::f32;
    stage.recompute = options.recompute.empty()                        ? Recomputation::none
                      : options.recompute == recomputeLevels().front() ? Recomputation::cheap
                                                                       : Recomputation::most;
    stage.disabled = std::vector<std::string>(options.disabled.begin(), options.disabled.end());

    OwningOpRef<ModuleOp> module = model.clone();
    if (phase >= Phase::Fused)
      run("fused", target, *module, [&](OpPassManager &manager) { addStage(Stage::Fused, manager, stage); });
    if (phase >= Phase::Differentiated)
      run("differentiated", target, *module,
          [&](OpPassManager &manager) { addStage(Stage::Differentiated, manager, stage); });
    return module;
  }

  bool has(Target target) const { return llvm::is_contained(options.targets, target); }

  // The images of a target, each once, best first: the runtime uses the first one that the machine can run.
  std::vector<std::string> imagesOf(Target target) const {
    std::vector<std::string> names;
    for (const std::string &name : target == Target::CPU ? options.cpus : options.cudaArchs)
      if (!llvm::is_contained(names, name))
        names.push_back(name);
    llvm::stable_sort(names, [&](const std::string &a, const std::string &b) {
      return target == Target::CPU
                 ? InstructionSet::named(a) > InstructionSet::named(b)
                 : &gpu::Architecture::named(a) > &gpu::Architecture::named(b); // known() lists the newest last
    });
    return names;
  }
  // The image that `--emit` shows: the one that was named first.
  std::string firstImage(Target target) const {
    return target == Target::CPU ? options.cpus.front() : options.cudaArchs.front();
  }

  std::unique_ptr<Image> makeImage(Target target, const std::string &name) {
    if (target == Target::CUDA)
      return std::make_unique<GPUImage>(context, gpu::Architecture::named(name));
    const InstructionSet set = InstructionSet::named(name);
    const DType type = options.dtype == "f64" ? DType::F64 : DType::F32;
    std::unique_ptr<ImageBackend> backend;
    if (set.plain)
      backend = std::make_unique<PlainBackend>(context, set, type);
    else
      backend = std::make_unique<CPUBackend>(context, set, type);
    if (options.checkBounds)
      backend->checkBounds();
    return std::make_unique<CPUImage>(std::move(backend), set.name, cache);
  }

  // Schedules for one image, which then holds the kernels.
  Module scheduleFor(Image &image, ModuleOp module) {
    TimingScope timing = timed("schedule");
    Module plan = schedule(module, image.backend());
    plan.compute = options.dtype;
    return plan;
  }

  TimingScope timed(const std::string &what) {
    return options.timing ? options.timing->nest(StringRef(what)) : TimingScope();
  }

  void pruneCache() const { cache.prune(); }

private:
  static bool isPlain(const std::string &cpu) { return InstructionSet::named(cpu).plain; }
  static bool hasTiles(const std::string &cpu) { return InstructionSet::named(cpu).amx; }
  PassTarget passTarget(Target target) const {
    if (target == Target::CUDA)
      return PassTarget::cuda;
    // All images have the same program.
    return llvm::any_of(options.cpus, isPlain)    ? PassTarget::plain
           : llvm::all_of(options.cpus, hasTiles) ? PassTarget::amx
                                                  : PassTarget::cpu;
  }

  // Runs the passes of a stage.
  void run(StringRef stage, Target target, ModuleOp module, llvm::function_ref<void(OpPassManager &)> fill) {
    PassManager manager(&context, ModuleOp::getOperationName());
    fill(manager);
    // Verifying after every pass takes a third of the time that a deep model takes. Once is enough for what leaves the
    // stage; after each pass only if modules are dumped, to find the pass that makes an invalid one.
    manager.enableVerifier(!options.dumpDirectory.empty());
    std::string reproducer;
    if (!options.dumpDirectory.empty()) {
      const std::string folder = options.dumpDirectory + "/" + (target == Target::CPU ? "cpu-" : "cuda-") + stage.str();
      makeFolder(folder);
      auto never = [](Pass *, Operation *) { return false; };
      auto always = [](Pass *, Operation *) { return true; };
      manager.enableIRPrintingToFileTree(never, always, /*printModuleScope=*/false, /*printAfterOnlyOnChange=*/true,
                                         /*printAfterOnlyOnFailure=*/false, folder,
                                         OpPrintingFlags().enableDebugInfo());
      reproducer = folder + "/reproducer.mlir";
      manager.enableCrashReproducerGeneration(reproducer);
    }
    TimingScope timing = timed(stage.str());
    manager.enableTiming(timing);
    if (failed(manager.run(module)) || failed(verify(module)))
      throw Error("compile: a pass of the stage '" + stage.str() + "' failed; see the message above" +
                  (reproducer.empty() ? "; add --dump-ir-dir for a reproducer"
                                      : "; `xfc-opt --run-reproducer " + reproducer + "` repeats it"));
  }

  const PipelineOptions &options;
  MLIRContext &context;
  ModuleOp model;
  ObjectCache cache;
};

} // namespace

std::string emitPhase(ModuleOp model, const PipelineOptions &options, Phase phase) {
  Compilation compilation(model, options);
  const Target target = options.targets.front();
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(phase, target);
  if (phase < Phase::Scheduled)
    return printModule(*module);
  std::unique_ptr<Image> image = compilation.makeImage(target, compilation.firstImage(target));
  OwningOpRef<ModuleOp> plan = scheduled(*module, image->backend());
  return phase == Phase::Scheduled ? printModule(*plan) : image->kernels();
}

// The code of the first image of a target.
static std::string emitCode(ModuleOp model, const PipelineOptions &options, Target target) {
  Compilation compilation(model, options);
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(Phase::Lowered, target);
  std::unique_ptr<Image> image = compilation.makeImage(target, compilation.firstImage(target));
  compilation.scheduleFor(*image, *module);
  return image->code();
}

std::string emitLLVM(ModuleOp model, const PipelineOptions &options) { return emitCode(model, options, Target::CPU); }

std::string emitPTX(ModuleOp model, const PipelineOptions &options) { return emitCode(model, options, Target::CUDA); }

Module planOf(ModuleOp model, const PipelineOptions &options) {
  Compilation compilation(model, options);
  const Target target = options.targets.front();
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(Phase::Scheduled, target);
  return compilation.scheduleFor(*compilation.makeImage(target, compilation.firstImage(target)), *module);
}

std::vector<std::vector<ObjectFile>> compileObjects(ModuleOp model, const PipelineOptions &options) {
  Compilation compilation(model, options);
  std::vector<std::pair<Target, OwningOpRef<ModuleOp>>> modules;
  for (Target target : {Target::CPU, Target::CUDA})
    if (compilation.has(target))
      modules.emplace_back(target, compilation.moduleAfter(Phase::Lowered, target));
  // From here on, work is spread over all cores. Earlier, starting threads would have cost more than it saved.
  model.getContext()->enableMultithreading();
  std::vector<std::vector<ObjectFile>> objects;
  std::vector<std::string> images, deviceImages;
  for (auto &[target, module] : modules)
    for (const std::string &name : compilation.imagesOf(target)) {
      std::unique_ptr<Image> image = compilation.makeImage(target, name);
      const Module plan = compilation.scheduleFor(*image, *module);
      std::vector<std::string> &table = target == Target::CPU ? images : deviceImages;
      const std::string number = std::to_string(table.size());
      objects.push_back(image->objects(plan, number, [&](const std::string &what) { return compilation.timed(what); }));
      table.push_back((target == Target::CPU ? "xfc_image_" : "xfc_device_image_") + number);
    }
  objects.push_back({emitImageTables(images, deviceImages)});
  compilation.pruneCache();
  return objects;
}

} // namespace xfc
