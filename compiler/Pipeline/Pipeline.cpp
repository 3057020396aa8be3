// Takes a module through the stages and, for each image of each target, through scheduling to code.
#include "Pipeline.h"
#include "CPU/InstructionSet.h"
#include "CPU/Object.h"
#include "Import/Import.h"
#include "PassHistory.h"
#include "Plan/PlanDialect.h"
#include "Schedule/Passes.h"
#include "Targets.h"
#include "Transforms/ComputeTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "plan/Serialization.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "llvm/BinaryFormat/Magic.h"

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

class Compilation {
public:
  Compilation(ModuleOp model, const PipelineOptions &options)
      : options(options), context(*model.getContext()), model(model), cache(options.cacheDirectory) {
    for (Target target : options.targets)
      if (const TargetTraits &traits = traitsOf(passTarget(target)); options.dtype == traits.refusedDtype)
        throw Error("--dtype " + options.dtype + ": " + traits.refusal.str());
    for (const std::string &type : options.computeTypes)
      checkComputeType(type);
    if (has(Target::CUDA))
      for (const std::string &arch : options.cudaArchs)
        gpuImage(arch); // throws for an unknown one, before work begins
    if (!options.dumpDirectory.empty()) {
      makeFolder(options.dumpDirectory);
      writeFile(options.dumpDirectory + "/imported.mlir", printModule(model));
    }
  }

  // The module after the passes of a phase.
  OwningOpRef<ModuleOp> moduleAfter(Phase phase, Target target) {
    if (isPlan(model)) {
      if (phase < Phase::Scheduled)
        throw Error("--emit: the model is a plan already; expected scheduled, lowered, or what is made of them");
      return model.clone();
    }
    StageOptions stage;
    stage.target = passTarget(target);
    stage.dtype = options.dtype == "f64" ? DataType::f64 : options.dtype == "bf16" ? DataType::bf16 : DataType::f32;
    if (!options.computeTypes.empty())
      stage.computeTypes = options.computeTypes;
    stage.recompute = options.recompute.empty()                        ? Recomputation::none
                      : options.recompute == recomputeLevels().front() ? Recomputation::cheap
                                                                       : Recomputation::most;
    stage.disabled = std::vector<std::string>(options.disabled.begin(), options.disabled.end());

    OwningOpRef<ModuleOp> module = model.clone();
    note("imported", *module);
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
    llvm::stable_sort(names, isBetter);
    return names;
  }
  std::unique_ptr<Image> makeImage(Target target, const std::string &name) const {
    const DType type = options.dtype == "f64" ? DType::F64 : DType::F32;
    return target == Target::CUDA ? gpuImage(name) : cpuImage(name, type, options.checkBounds);
  }
  // The image that `--emit` shows: the one that was named first.
  std::unique_ptr<Image> firstImage(Target target) const {
    return makeImage(target, target == Target::CPU ? options.cpus.front() : options.cudaArchs.front());
  }

  // The plan of a module for one image. A module that is already a plan has only one image, so it can be taken.
  OwningOpRef<ModuleOp> planFor(const Image &image, OwningOpRef<ModuleOp> &module) {
    if (isPlan(*module))
      return std::move(module);
    TimingScope timing = timed("schedule");
    OwningOpRef<ModuleOp> plan = scheduled(*module, image.backend(), [&](PassManager &manager) {
      if (options.history)
        options.history->record(manager, "scheduled");
    });
    note("scheduled", *plan);
    return plan;
  }

  // Serializes a plan for the runtime. A plan that was read from a file may have been edited, so it is also read back,
  // which applies all the checks that the runtime makes.
  Module serialized(ModuleOp plan) {
    FailureOr<Module> module = serialize(plan);
    if (failed(module))
      throw Error("compile: the plan cannot be serialized; see the message above");
    if (isPlan(model)) {
      const std::vector<uint8_t> bytes = xfc::serialize(*module);
      deserialize(bytes.data(), bytes.size()).programs.readAll();
    }
    return *module;
  }

  TimingScope timed(const std::string &what) {
    return options.timing ? options.timing->nest(StringRef(what)) : TimingScope();
  }

  const ObjectCache &objectCache() const { return cache; }

private:
  static bool isPlain(const std::string &cpu) { return InstructionSet::named(cpu).plain; }
  static bool hasTiles(const std::string &cpu) { return InstructionSet::named(cpu).amx; }
  // That a type of --compute-type is one, and that a target has it.
  void checkComputeType(const std::string &type) const {
    if (options.dtype != "f32")
      throw Error("--compute-type " + type + ": an executable of " + options.dtype +
                  " decodes in nothing else; use --dtype f32");
    llvm::Expected<ComputeTypes> types = ComputeTypes::parse(type);
    if (!types)
      throw Error("--compute-type " + type + ": " + llvm::toString(types.takeError()));
    if (llvm::count(options.computeTypes, type) > 1)
      throw Error("--compute-type " + type + ": given twice; leave one out");
    if (types->areAll({}))
      throw Error("--compute-type " + type + ": an executable can always decode in f32; leave this out");
    if (llvm::none_of(options.targets,
                      [&](Target target) { return types->areAmong(traitsOf(passTarget(target)).computeTypes); })) {
      std::string known = "f32";
      for (ComputeType other : traitsOf(passTarget(options.targets.front())).computeTypes)
        known += ", " + stringifyComputeType(other).str();
      throw Error("--compute-type " + type + ": the target multiplies in " + known + " only");
    }
  }
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
    if (options.history)
      options.history->record(manager, stage.str());
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
    note(stage, module);
  }

  // Records the module after a stage.
  void note(StringRef stage, ModuleOp module) const {
    if (options.history)
      options.history->stages.push_back({stage.str(), textOf(module)});
  }

  const PipelineOptions &options;
  MLIRContext &context;
  ModuleOp model;
  ObjectCache cache;
};

} // namespace

bool isPlan(ModuleOp module) { return !module.getOps<ParametersOp>().empty(); }

void takeFromPlan(PipelineOptions &options, ModuleOp plan) {
  ModuleOp code = codeOf(plan);
  auto target = code ? code->getAttrOfType<StringAttr>(targetAttr) : StringAttr();
  if (!target)
    throw Error("compile: the plan has no code; expected what `xfc compile --emit scheduled` printed");
  const std::string name = target.str();
  options.targets = {isGPU(name) ? Target::CUDA : Target::CPU};
  (isGPU(name) ? options.cudaArchs : options.cpus) = {name};
  options.dtype = computeOf(plan);
}

bool isExecutable(const std::string &file) {
  llvm::file_magic magic;
  return !llvm::identify_magic(file, magic) &&
         (magic == llvm::file_magic::elf_executable || magic == llvm::file_magic::elf_shared_object);
}

Module planIn(const std::string &executable, Target target) {
  for (NamedPlan &found : plansOf(executable))
    if (isGPU(found.target) == (target == Target::CUDA))
      return std::move(found.plan);
  throw Error(executable + ": has no code for " + (target == Target::CUDA ? "GPUs" : "CPUs"));
}

void addPlanDialects(DialectRegistry &registry) {
  registry.insert<PlanDialect>();
  addCodeDialects(registry);
}

std::string emitPhase(ModuleOp model, const PipelineOptions &options, Phase phase) {
  Compilation compilation(model, options);
  const Target target = options.targets.front();
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(phase, target);
  if (phase < Phase::Scheduled)
    return printModule(*module);
  OwningOpRef<ModuleOp> plan = compilation.planFor(*compilation.firstImage(target), module);
  if (phase == Phase::Scheduled)
    return printModule(*plan);
  std::string text;
  llvm::raw_string_ostream(text) << codeOf(*plan);
  return text;
}

// The code of the first image of a target.
static std::string emitCode(ModuleOp model, const PipelineOptions &options, Target target) {
  Compilation compilation(model, options);
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(Phase::Lowered, target);
  std::unique_ptr<Image> image = compilation.firstImage(target);
  return image->text(codeOf(*compilation.planFor(*image, module)));
}

std::string emitLLVM(ModuleOp model, const PipelineOptions &options) { return emitCode(model, options, Target::CPU); }

std::string emitPTX(ModuleOp model, const PipelineOptions &options) { return emitCode(model, options, Target::CUDA); }

Module planOf(ModuleOp model, const PipelineOptions &options) {
  Compilation compilation(model, options);
  const Target target = options.targets.front();
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(Phase::Scheduled, target);
  return compilation.serialized(*compilation.planFor(*compilation.firstImage(target), module));
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
      OwningOpRef<ModuleOp> planned = compilation.planFor(*image, module);
      const Module plan = compilation.serialized(*planned);
      OwningOpRef<ModuleOp> code = codeOf(*planned);
      code->getOperation()->remove();
      planned = nullptr; // the programs are serialized by now, and take more memory than everything else
      std::vector<std::string> &table = target == Target::CPU ? images : deviceImages;
      const std::string number = std::to_string(table.size());
      objects.push_back(image->objects(*code, plan, number, compilation.objectCache(),
                                       [&](const std::string &what) { return compilation.timed(what); }));
      table.push_back((target == Target::CPU ? "xfc_image_" : "xfc_device_image_") + number);
    }
  objects.push_back({emitImageTables(images, deviceImages)});
  compilation.objectCache().prune();
  return objects;
}

} // namespace xfc
