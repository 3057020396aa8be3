// Takes a module through the stages and, for each image of each target, through scheduling to code.
#include "Pipeline.h"
#include "Import/Import.h"
#include "PassHistory.h"
#include "Plan/PlanDialect.h"
#include "Schedule/Passes.h"
#include "Target/Images.h"
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

const std::vector<std::string> &residualTypes() {
  static const std::vector<std::string> names = {"bf16", "f32"};
  return names;
}

const std::vector<std::string> &cacheTypes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"f32"};
    for (const ElementType &narrow : narrowTypes())
      all.emplace_back(narrow.name);
    return all;
  }();
  return names;
}

const std::vector<std::string> &momentTypes() {
  static const std::vector<std::string> names = {"f32", "bf16"};
  return names;
}

const std::vector<std::string> &recomputeLevels() {
  static const std::vector<std::string> names = {"cheap", "most"};
  return names;
}

namespace {

// The targets of a platform, which all have the same program.
struct TargetGroup {
  Platform platform;
  std::vector<std::unique_ptr<Target>> targets; // in the order of the options, each once

  // The target that the program is made for: what it can do, the others can do, too.
  const Target &least() const {
    return **llvm::min_element(targets, [](const auto &a, const auto &b) { return isBetter(*b, *a); });
  }
  // The target that `--emit` shows.
  const Target &first() const { return *targets.front(); }
  // In the order in which the runtime tries their images.
  std::vector<const Target *> bestFirst() const {
    std::vector<const Target *> sorted;
    sorted.reserve(targets.size());
    for (const std::unique_ptr<Target> &target : targets)
      sorted.push_back(target.get());
    llvm::stable_sort(sorted, [](const Target *a, const Target *b) { return isBetter(*a, *b); });
    return sorted;
  }
};

class Compilation {
public:
  Compilation(ModuleOp model, const PipelineOptions &options)
      : options(options), context(*model.getContext()), model(model), cache(options.cacheDirectory) {
    const TargetOptions chosen{.type = options.dtype == "f64" ? DType::F64 : DType::F32,
                               .checkBounds = options.checkBounds,
                               .wideResidual = options.residual == "f32"};
    for (const auto &[platform, names] : options.targets) {
      TargetGroup &group = groups.emplace_back(TargetGroup{platform, {}});
      for (const std::string &name : names) {
        std::unique_ptr<Target> target = makeTarget(platform, name, chosen);
        if (llvm::none_of(group.targets, [&](const auto &other) { return other->name == target->name; }))
          group.targets.push_back(std::move(target));
      }
    }
    for (const TargetGroup &group : groups)
      if (const TargetTraits &traits = group.least().traits; options.dtype == traits.refusedDtype)
        throw Error("--dtype " + options.dtype + ": " + traits.refusal.str());
    if (!options.residual.empty() && options.dtype != "bf16")
      throw Error("--residual " + options.residual + ": rows are stored in " + options.dtype +
                  "; only with --dtype bf16 is there a choice");
    const bool narrows = !options.cacheType.empty() && options.cacheType != cacheTypes().front();
    if (narrows && options.dtype == "f64")
      throw Error("--cache-type " + options.cacheType +
                  ": an executable of f64 keeps keys and values in f64; use "
                  "--dtype f32");
    if (narrows && options.disabled.contains("fuse-attention"))
      throw Error("--cache-type " + options.cacheType +
                  ": only fused attention reads such keys and values; do without "
                  "--no-fuse, or name other fusions");
    if (options.momentType != momentTypes().front() && options.dtype == "f64")
      throw Error("--moment-type " + options.momentType +
                  ": an executable of f64 keeps everything in f64; use "
                  "--dtype f32");
    if (options.momentType != momentTypes().front() && groups.front().least().name == "plain")
      throw Error("--moment-type " + options.momentType + ": the plain path keeps moments in f32 only");
    for (const std::string &type : options.computeTypes)
      checkComputeType(type);
    if (!options.dumpDirectory.empty()) {
      makeFolder(options.dumpDirectory);
      writeFile(options.dumpDirectory + "/imported.mlir", printModule(model));
    }
  }

  // The module after the passes of a phase.
  OwningOpRef<ModuleOp> moduleAfter(Phase phase, const TargetGroup &group) {
    if (isPlan(model)) {
      if (phase < Phase::Scheduled)
        throw Error("--emit: the model is a plan already; expected scheduled, lowered, or what is made of them");
      return model.clone();
    }
    StageOptions stage;
    stage.target = group.least().name;
    stage.dtype = options.dtype == "f64" ? DataType::f64 : options.dtype == "bf16" ? DataType::bf16 : DataType::f32;
    if (!options.computeTypes.empty())
      stage.computeTypes = options.computeTypes;
    stage.momentType = options.momentType;
    stage.cacheType = options.cacheType;
    stage.recompute = options.recompute.empty()                        ? Recomputation::none
                      : options.recompute == recomputeLevels().front() ? Recomputation::cheap
                                                                       : Recomputation::most;
    stage.disabled = std::vector<std::string>(options.disabled.begin(), options.disabled.end());

    OwningOpRef<ModuleOp> module = model.clone();
    note("imported", *module);
    if (phase >= Phase::Fused)
      run("fused", group.platform, *module, [&](OpPassManager &manager) { addStage(Stage::Fused, manager, stage); });
    if (phase >= Phase::Differentiated)
      run("differentiated", group.platform, *module,
          [&](OpPassManager &manager) { addStage(Stage::Differentiated, manager, stage); });
    return module;
  }

  // The targets of the platform that was named first.
  const TargetGroup &firstGroup() const { return groups.front(); }
  // Those of a platform; null if there are none.
  const TargetGroup *groupOf(Platform platform) const {
    const auto found = llvm::find_if(groups, [&](const TargetGroup &group) { return group.platform == platform; });
    return found == groups.end() ? nullptr : &*found;
  }

  // The plan of a module for one target. A module that is already a plan has only one, so it can be taken.
  OwningOpRef<ModuleOp> planFor(const Target &target, OwningOpRef<ModuleOp> &module) {
    if (isPlan(*module))
      return std::move(module);
    TimingScope timing = timed("schedule");
    OwningOpRef<ModuleOp> plan = scheduled(*module, target, [&](PassManager &manager) {
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
    if (llvm::none_of(groups,
                      [&](const TargetGroup &group) { return types->areAmong(group.least().traits.computeTypes); })) {
      std::string known = "f32";
      for (ComputeType other : groups.front().least().traits.computeTypes)
        known += ", " + stringifyComputeType(other).str();
      throw Error("--compute-type " + type + ": the target multiplies in " + known + " only");
    }
  }

  // Runs the passes of a stage.
  void run(StringRef stage, Platform platform, ModuleOp module, llvm::function_ref<void(OpPassManager &)> fill) {
    PassManager manager(&context, ModuleOp::getOperationName());
    fill(manager);
    if (options.history)
      options.history->record(manager, stage.str());
    // Verifying after every pass takes a third of the time that a deep model takes. Once is enough for what leaves the
    // stage; after each pass only if modules are dumped, to find the pass that makes an invalid one.
    manager.enableVerifier(!options.dumpDirectory.empty());
    std::string reproducer;
    if (!options.dumpDirectory.empty()) {
      const std::string folder = options.dumpDirectory + "/" + infoOf(platform).name + "-" + stage.str();
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
  std::vector<TargetGroup> groups; // in the order of the options
};

} // namespace

bool isPlan(ModuleOp module) { return !module.getOps<ParametersOp>().empty(); }

void takeFromPlan(PipelineOptions &options, ModuleOp plan) {
  ModuleOp code = codeOf(plan);
  auto target = code ? code->getAttrOfType<StringAttr>(targetAttr) : StringAttr();
  if (!target)
    throw Error("compile: the plan has no code; expected what `xfc compile --emit scheduled` printed");
  const std::string name = target.str();
  options.targets = {{platformOf(name), {name}}};
  options.dtype = computeOf(plan);
}

bool isExecutable(const std::string &file) {
  llvm::file_magic magic;
  return !llvm::identify_magic(file, magic) &&
         (magic == llvm::file_magic::elf_executable || magic == llvm::file_magic::elf_shared_object);
}

Module planIn(const std::string &executable, Platform platform) {
  for (NamedPlan &found : plansOf(executable))
    if (platformOf(found.target) == platform)
      return std::move(found.plan);
  throw Error(executable + ": has no code for " + infoOf(platform).machines);
}

void addPlanDialects(DialectRegistry &registry) {
  registry.insert<PlanDialect>();
  addCodeDialects(registry);
}

std::string emitPhase(ModuleOp model, const PipelineOptions &options, Phase phase) {
  Compilation compilation(model, options);
  const TargetGroup &group = compilation.firstGroup();
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(phase, group);
  if (phase < Phase::Scheduled)
    return printModule(*module);
  OwningOpRef<ModuleOp> plan = compilation.planFor(group.first(), module);
  if (phase == Phase::Scheduled)
    return printModule(*plan);
  std::string text;
  llvm::raw_string_ostream(text) << codeOf(*plan);
  return text;
}

std::string emitCode(ModuleOp model, const PipelineOptions &options, Platform platform) {
  Compilation compilation(model, options);
  const TargetGroup &group = *compilation.groupOf(platform);
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(Phase::Lowered, group);
  return group.first().text(codeOf(*compilation.planFor(group.first(), module)));
}

Module planOf(ModuleOp model, const PipelineOptions &options) {
  Compilation compilation(model, options);
  const TargetGroup &group = compilation.firstGroup();
  OwningOpRef<ModuleOp> module = compilation.moduleAfter(Phase::Scheduled, group);
  return compilation.serialized(*compilation.planFor(group.first(), module));
}

std::vector<std::vector<ObjectFile>> compileObjects(ModuleOp model, const PipelineOptions &options) {
  Compilation compilation(model, options);
  std::vector<std::pair<const TargetGroup *, OwningOpRef<ModuleOp>>> modules;
  for (const PlatformInfo &info : platforms)
    if (const TargetGroup *group = compilation.groupOf(info.platform))
      modules.emplace_back(group, compilation.moduleAfter(Phase::Lowered, *group));
  // From here on, work is spread over all cores. Earlier, starting threads would have cost more than it saved.
  model.getContext()->enableMultithreading();
  std::vector<std::vector<ObjectFile>> objects;
  std::map<Platform, std::vector<std::string>> images;
  for (auto &[group, module] : modules)
    for (const Target *target : group->bestFirst()) {
      OwningOpRef<ModuleOp> planned = compilation.planFor(*target, module);
      const Module plan = compilation.serialized(*planned);
      OwningOpRef<ModuleOp> code = codeOf(*planned);
      code->getOperation()->remove();
      planned = nullptr; // the programs are serialized by now, and take more memory than everything else
      std::vector<std::string> &names = images[group->platform];
      names.push_back(infoOf(group->platform).image + std::to_string(names.size()));
      objects.push_back(target->objects(*code, plan, names.back(), compilation.objectCache(),
                                        [&](const std::string &what) { return compilation.timed(what); }));
    }
  objects.push_back({emitImageTables(images)});
  compilation.objectCache().prune();
  return objects;
}

} // namespace xfc
