// Parses the arguments that subcommands reading a model share, and loads the module that they select.
#include "ModelArguments.h"
#include "Foreign/OurModel.h"
#include "Pipeline/Pipeline.h"
#include "ShippedModels.h"
#include "support/CommandLine.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/Quoted.h"
#include "tokenizers/Tokenizer.h"
#include "vocabularies/Vocabulary.h"
#include <algorithm>
#include <filesystem>
#include <sstream>

namespace xfc {

void ModelArguments::addTo(Command command) {
  const Subject ofModel(command, "Model");
  command
      .addOption(
          "model", given,
          "a model.json, the name of a model that ships (`xfc models` lists them), a folder made by `xfc import` or "
          "by train, a module printed by --emit imported or --emit scheduled (.mlir), or -: a model.json from standard "
          "input")
      .required();
  CommandOption joint =
      command.addOption("--vocab", vocabulary, "vocabulary of both languages: sets vocabulary sizes and token ids");
  command.addOption("--source-vocab", sourceVocabulary, "vocabulary of the source").excludes(joint);
  command.addOption("--target-vocab", targetVocabulary, "vocabulary of the target").excludes(joint);
  command.addOption("--set", settings, "override a value of \"params\", or a token id (tokens.pad=1)")
      .valueName("KEY=VALUE");
}

// Text of a module grows with the number of layers, by some 20 kB for each.
static constexpr size_t mostModuleBytes = size_t(1) << 30;

static void addVocabulary(std::vector<Override> &overrides, const std::string &file, const char *size, bool target) {
  const Vocabulary read(file, 0);
  overrides.push_back({size, std::to_string(read.size())});
  if (!target)
    return;
  // The special tokens are those of the target, because search and losses work on target ids. Batches need no pad, and
  // a vocabulary without bos begins translations with eos, as fairseq does.
  const SpecialTokens named = read.special();
  if (named.eos < 0)
    throw Error(file + ": has no eos token, with which translations end; make it with `xfc vocab`, or spm_train, which "
                       "adds one unless --eos_id=-1 is given");
  const int32_t start = named.bos < 0 ? named.eos : named.bos;
  const std::pair<const char *, int> tokens[] = {{"tokens.pad", named.pad},
                                                 {"tokens.unk", named.unk},
                                                 {"tokens.bos", start},
                                                 {"tokens.eos", named.eos},
                                                 {"tokens.start", start}};
  for (auto [key, id] : tokens)
    overrides.push_back({key, std::to_string(id)});
}

// The description that the argument stands for. If a file or folder has the name of a model that ships with xfc, the
// file or folder is taken.
static FoundDescription describedBy(const std::string &given) {
  if (given == "-")
    return {readFile("/dev/stdin"), "standard input"};
  if (isFolder(given))
    return descriptionIn(given);
  std::vector<std::string> names;
  if (!exists(given) && given.find_first_of("/.") == std::string::npos)
    for (const ShippedModel &model : shippedModels()) {
      if (model.name == given)
        return {readFile(model.file), model.file};
      names.push_back(model.name);
    }
  if (!names.empty()) {
    const std::string near = nearest(given, names);
    throw Error(given + ": there is no such file, and no model of this name ships with xfc" +
                (near.empty() ? "; " : "; did you mean '" + near + "'? ") + "`xfc models` lists those that do");
  }
  return {readFile(given), given};
}

mlir::OwningOpRef<mlir::ModuleOp> ModelArguments::load(const ImportOptions &options, mlir::MLIRContext &context) const {
  if (given.ends_with(".mlir")) {
    const std::string &file = given;
    if (!settings.empty() || !vocabulary.empty() || !sourceVocabulary.empty() || !targetVocabulary.empty())
      throw Error(file + ": the values of a module are fixed; give --set and vocabularies when you make it: "
                         "`xfc compile model.json --set KEY=VALUE --emit imported`");
    if (options.distillation > 0)
      throw Error(file + ": the programs of a module are fixed; give --distillation when you make it: "
                         "`xfc compile model.json --distillation K --emit imported`");
    if (options.guided.links > 0)
      throw Error(file + ": the programs of a module are fixed; give --guided-alignment when you make it: "
                         "`xfc compile model.json --guided-alignment K --emit imported`");
    mlir::DialectRegistry registry;
    addPlanDialects(registry);
    context.appendDialectRegistry(registry);
    mlir::OwningOpRef<mlir::ModuleOp> module = parseModule(readFile(file, mostModuleBytes), file, context);
    if (!module || (!isPlan(*module) && !prepareModel(*module, options)))
      throw Error(file + ": not a module that can be compiled; see the message above");
    return module;
  }
  std::vector<Override> overrides;
  const std::string &source = vocabulary.empty() ? sourceVocabulary : vocabulary;
  const std::string &target = vocabulary.empty() ? targetVocabulary : vocabulary;
  if (!source.empty())
    addVocabulary(overrides, source, "source_vocab", false);
  if (!target.empty())
    addVocabulary(overrides, target, "target_vocab", true);
  for (const std::string &setting : settings) {
    size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--set", "expected KEY=VALUE, found " + inQuotes(setting));
    overrides.push_back({setting.substr(0, equals), setting.substr(equals + 1)});
  }
  const FoundDescription found = describedBy(given);
  return importModel(parseDescription(found.text, found.file, overrides), options, context);
}

std::vector<std::string> splitList(const std::string &text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');)
    if (!part.empty())
      parts.push_back(part);
  return parts;
}

void check(const std::string &flag, const std::string &value, const std::vector<std::string> &known) {
  if (std::find(known.begin(), known.end(), value) == known.end())
    throw UsageError(flag, "unknown '" + value + "'; known: " + listed(known));
}

std::vector<PlatformTargets> TargetArguments::chosen() const {
  std::vector<std::string> known;
  known.reserve(std::size(platforms));
  for (const PlatformInfo &info : platforms)
    known.emplace_back(info.name);
  std::vector<PlatformTargets> targets;
  for (const std::string &given : splitList(platform)) {
    check("--target", given, known);
    const PlatformInfo &info = platforms[llvm::find(known, given) - known.begin()];
    targets.push_back({info.platform, splitList(names.at(info.platform))});
    if (targets.back().names.empty())
      throw UsageError(info.flag, std::string("expected the name of an ") + info.kind);
  }
  if (targets.empty())
    throw UsageError("--target", "expected cpu, cuda, or cpu,cuda");
  return targets;
}

void ComputeTypeArguments::addTo(Command command) {
  command
      .addOption("--compute-type", given,
                 "type that decoding can multiply in besides f32 (`translate --compute-type`), for each time it is "
                 "given: bf16, int8 or int4; or types by the names of weights, as int8,decoder.*=int4 (default: bf16 "
                 "and int8)")
      .valueName("TYPE[,PATTERN=TYPE]...");
}

void FusionArguments::addTo(Command command) {
  option = command.addOption("--no-fuse", names, "turn off every fusion, or only those named: " + listed(fusions()))
               .values(0, 1);
}

void RecomputeArgument::addTo(Command command) {
  // This is a flag, so the next argument is a level only if it follows "=".
  command.addFlag("--recompute{" + recomputeLevels().front() + "}", name,
                  "train in less memory: recompute values for the gradients instead of keeping them. Levels: cheap "
                  "(memory-bound operations: norms, activations, dropout), most (everything that makes the arena "
                  "smaller)");
}

const std::string &RecomputeArgument::level() const {
  if (!name.empty())
    check("--recompute", name, recomputeLevels());
  return name;
}

void CompilationArguments::applyTo(PipelineOptions &pipeline) const {
  pipeline.targets = targets.chosen();
  check("--dtype", dtype, dtypes());
  pipeline.dtype = dtype;
  if (!residual.empty())
    check("--residual", residual, residualTypes());
  pipeline.residual = residual;
  check("--moment-type", momentType, momentTypes());
  pipeline.momentType = momentType;
  if (!cacheType.empty())
    check("--cache-type", cacheType, cacheTypes());
  pipeline.cacheType = cacheType;
  pipeline.computeTypes = computeTypes.types();
  pipeline.disabled = noFuse.disabled();
  pipeline.recompute = recompute.level();
}

std::set<std::string> FusionArguments::disabled() const {
  std::vector<std::string> off = splitList(names);
  for (const std::string &name : off)
    check("--no-fuse", name, fusions());
  if (off.empty() && option.count() > 0)
    off = fusions();
  return {off.begin(), off.end()};
}

} // namespace xfc
