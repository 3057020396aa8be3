// The flags that select a command's model, and the engine and vocabularies that they lead to.
#include "decode/ModelOptions.h"
#include "decode/Defaults.h"
#include "decode/Flags.h"
#include "decode/Packed.h"
#include "engine/Identity.h"
#include "support/CommandLine.h"
#include "support/Files.h"
#include "support/Quoted.h"
#include "support/Terminal.h"
#include "tokenizers/ReversedTokenizer.h"
#include "tokenizers/Sentences.h"
#include "vocabularies/VocabularyIdentity.h"
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <malloc.h>
#include <thread>
#include <tuple>
#include <utility>

namespace xfc {

namespace {

// The model in a packed executable, unless files are named.
std::optional<PackedModel> carried(const ModelOptions &options) {
  if (!options.model.empty() || !options.weights.empty())
    return std::nullopt;
  std::optional<PackedModel> packed = options.packed.empty() ? packedModel() : packedModel(options.packed);
  if (!packed && !options.packed.empty())
    throw Error(options.packed + ": this executable carries no model; `pack` writes one that does");
  if (!packed)
    throw Error("no model: give --model DIR (the --out folder of train), or --weights FILE and --vocab FILE");
  return packed;
}

// If the check throws, turns its error into a warning if a --force flag overrides it, and rethrows it otherwise.
template <typename Check> void unlessForced(bool forced, const char *flag, const Warn &warn, Check check) {
  try {
    check();
  } catch (const Error &error) {
    if (!forced)
      throw;
    warn(std::string(flag) + " overrides this: " + error.what());
  }
}

// Loads the weights that the options name, or the packed ones. Returns what their file records.
Metadata loadInto(Engine &engine, const ModelOptions &options, std::optional<PackedModel> &packed) {
  const std::string file = packed ? "the packed weights" : modelFiles(options).weights;
  Metadata metadata = packed ? loadWeights(engine, std::move(packed->weights), file, options.forceModel)
                             : loadWeights(engine, file, options.forceModel);
  if (options.forceModel)
    unlessForced(true, "--force-model", options.warn,
                 [&] { checkModel(metadata, engine.module(), file, engine.library()); });
  if (!namesModel(metadata) && !options.quiet)
    std::fprintf(stderr,
                 "%s: %s does not record which model its weights belong to; they are assumed to be those of '%s'\n",
                 nameOf(MessageKind::Note), file.c_str(), engine.module().model.c_str());
  return metadata;
}

// Keeps at most `most` ids (0: all), with a warning if any are cut.
std::vector<int32_t> cut(std::vector<int32_t> ids, int64_t most, const std::string &where, const Warn &warn) {
  if (most <= 0 || static_cast<int64_t>(ids.size()) <= most)
    return ids;
  warn(where + ": cut to the first " + std::to_string(most) + " tokens, the model's max_length");
  ids.resize(most);
  return ids;
}

// Loads the vocabularies from files or from a packed executable.
LoadedVocabularies vocabulariesOf(const ModelOptions &options, const std::optional<PackedModel> &packed,
                                  const Module &module) {
  ModelFiles files = packed ? ModelFiles{"", options.vocabulary, options.targetVocabulary} : modelFiles(options);
  LoadedVocabularies loaded;
  // Ids need no vocabulary, and one takes megabytes.
  if (options.format == Format::Ids && options.vocabulary.empty()) {
    loaded.source = std::make_shared<Vocabulary>(module.sourceVocab);
    loaded.target = std::make_shared<Vocabulary>(module.targetVocab);
    return loaded;
  }
  if (files.vocabulary.empty() && !(packed && !packed->vocabulary.empty()))
    throw Error("no vocabulary: give --vocab FILE, or --format ids if the lines are ids");

  auto load = [&](const std::string &file, const std::string &bytes, int64_t expected) {
    return std::make_shared<Vocabulary>(file.empty() ? Vocabulary::fromBytes(bytes, "the packed vocabulary", expected)
                                                     : Vocabulary(file, expected));
  };
  const std::string none;
  loaded.source = load(files.vocabulary, packed ? packed->vocabulary : none, module.sourceVocab);
  std::string targetBytes = packed && files.vocabulary.empty() ? packed->targetVocabulary : none;
  if (!files.targetVocabulary.empty() || !targetBytes.empty())
    loaded.target = load(files.targetVocabulary, targetBytes, module.targetVocab);
  else if (module.targetVocab == module.sourceVocab)
    loaded.target = loaded.source;
  else
    throw Error("no target vocabulary: the model has " + std::to_string(module.sourceVocab) + " source and " +
                std::to_string(module.targetVocab) + " target tokens; give --target-vocab FILE too");
  loaded.source->checkTokens(module);
  loaded.target->checkTokens(module);
  return loaded;
}

} // namespace

void printWarning(const std::string &warning) { printMessage(MessageKind::Warning, warning.c_str()); }

void addDevice(Command command, DeviceChoice &choice) {
  const Subject machine(command, "Machine");
  command.addOption("--device", choice.device, "cpu or cuda").oneOf({"cpu", "cuda"}).showDefault();
  command.addOption("--cuda-image", choice.cudaImage,
                    "GPU code to run: one of info's cuda_archs; ptx, or ptx:ARCH, has the driver compile it (default: "
                    "the best for the GPU)");
  command
      .addOption("--cuda-step", choice.cudaStep,
                 "how a GPU runs a decoding step: its kernels as a graph, or as one persistent kernel, with the same "
                 "result")
      .oneOf({"graph", "persistent"})
      .showDefault();
}

int threadsGiven(int threads) {
  return threads > 0 ? threads : static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
}

std::vector<int> threadsOfWorkers(int given, int workers) {
  const int threads = threadsGiven(given);
  if (workers > threads)
    throw Error("--workers " + std::to_string(workers) + ": each worker needs a thread, but --threads gives " +
                std::to_string(threads) + (given > 0 ? "" : ", one for each processor") +
                "; expected no more workers than threads");
  std::vector<int> each;
  each.reserve(static_cast<size_t>(workers));
  for (int worker = 0; worker < workers; ++worker)
    each.push_back(threads / workers + (worker < threads % workers));
  return each;
}

std::unique_ptr<Engine> makeEngine(int threads, const DeviceChoice &choice) {
  return std::make_unique<Engine>(threadsGiven(threads), choice);
}

void ModelOptions::takePath(const std::string &path) {
  std::error_code none;
  (!std::filesystem::is_regular_file(path, none) ? model : beginsAsExecutable(path) ? packed : weights) = path;
}

CommandOption ModelOptions::addPathTo(Command command, const std::string &description) {
  return command.addOption(
                    "--model", [this](const std::string &path) { takePath(path); }, description)
      .subject("Model");
}

static constexpr const char *modelPath = "folder written by train or `xfc import`, with weights and vocabulary; or an "
                                         "executable of this model that `pack` wrote";

void ModelOptions::addTo(Command command) {
  const Subject ofModel(command, "Model");
  addWeightsTo(command, addPathTo(command, modelPath));
}

void ModelOptions::addEnsembleTo(Command command) {
  const Subject ofModel(command, "Model");
  const CommandOption folder = command.addOption(
      "--model",
      [this](const std::vector<std::string> &paths) {
        takePath(paths.front());
        others.assign(paths.begin() + 1, paths.end());
      },
      std::string(modelPath) + "; given several times, the models decode together, as an ensemble");
  folder.valueName("TEXT");
  command
      .addOption("--ensemble-weights", ensembleWeights,
                 "the weight of each --model in the mean of their probabilities (default: equal weights)")
      .above(0, 1e6);
  const CommandOption libraries = addLibrariesTo(command, "--model after the first");
  addWeightsTo(command, folder);
  command.option("--weights").excludes("--ensemble-weights").excludes(libraries);
}

CommandOption ModelOptions::addLibrariesTo(Command command, const std::string &which) {
  return command
      .addOption(
          "--ensemble-library", ensembleLibraries,
          "the code of each " + which +
              ", in their order, for models of other architectures: libNAME.so of `xfc compile --emit lib`, or " +
              thisExecutable + " for this executable's, which all of them have without this option")
      .valueName("FILE");
}

void ModelOptions::checkLibraries(size_t others) const {
  if (ensembleLibraries.empty() || ensembleLibraries.size() == others)
    return;
  throw Error("--ensemble-library: expected one library for each further --model of an ensemble, of which there are " +
              std::to_string(others) + ", but " + std::to_string(ensembleLibraries.size()) + " were given; \"" +
              thisExecutable + "\" stands for the code of this executable");
}

void ModelOptions::addDraftTo(Command command) {
  const Subject ofModel(command, "Model");
  const CommandOption folder = command.addOption(
      "--draft", draft,
      "a smaller model, as --model takes one, that drafts the next tokens, so that the model reads several in a step: "
      "the translations stay the same. Only for --beam 1, or one sample");
  command
      .addOption("--draft-library", draftLibrary,
                 "the code of --draft: libNAME.so of `xfc compile --emit lib` (default: this executable's, for another "
                 "folder of this model)")
      .valueName("FILE")
      .needs(folder);
  command.addOption("--draft-tokens", draftTokens, "how many tokens --draft drafts at a time")
      .within(int64_t(1), mostDraftTokens)
      .showDefault()
      .needs(folder);
}

void ModelOptions::addRescorerTo(Command command) {
  command
      .addOption("--rescore", rescorer,
                 "another model, as --model takes one, which puts the translations of the beam in a new order: one "
                 "that writes lines from their end, for example")
      .valueName("TEXT")
      .subject("Model");
}

void ModelOptions::addShortlistTo(Command command) {
  const Subject ofModel(command, "Model");
  const CommandOption file = command.addOption(
      "--shortlist", shortlist.file,
      "which tokens translate which, written by `shortlist`, or for Marian: a translation has only tokens that this "
      "lists for its source, and the first of the vocabulary");
  file.valueName("FILE");
  command.addOption("--shortlist-first", shortlist.first, "--shortlist: how many of the vocabulary's first tokens")
      .notNegative()
      .showDefault()
      .needs(file);
  command
      .addOption("--shortlist-best", shortlist.best,
                 "--shortlist: how many of the most probable tokens for each token of "
                 "the source")
      .notNegative()
      .showDefault()
      .needs(file);
}

void ModelOptions::addWeightsTo(Command command, CommandOption folder) {
  command.addOption("--weights", weights, "weights (safetensors), in place of --model").excludes(folder);
  addEngineTo(command);
}

void ModelOptions::addEngineTo(Command command) {
  addThreads(command, threads);
  addDevice(command, device);
  addQuiet(command, quiet);
  command.addFlag("--force-model", forceModel, "accept weights recorded as belonging to another model")
      .subject("Model");
}

void ModelOptions::addVocabularyTo(Command command, bool withFormat) {
  const Subject vocabularies(command, "Vocabularies");
  addVocabularies(command, vocabulary, targetVocabulary);
  command.addFlag("--force-vocab", forceVocabulary,
                  "accept a vocabulary other than the one the weights were trained with");
  if (withFormat)
    addFormat(command, format);
}

ModelFiles modelFiles(const ModelOptions &options) {
  ModelFiles files{options.weights, options.vocabulary, options.targetVocabulary};
  if (options.model.empty())
    return files;
  if (!exists(options.model))
    throw Error(options.model +
                ": no such folder or file; expected the --out folder of train, or that of `xfc import`");
  std::string folder = options.model + "/";
  for (const char *name : {"best.safetensors", "last.safetensors", "model.safetensors"})
    if (files.weights.empty() && exists(folder + name))
      files.weights = folder + name;
  if (files.weights.empty())
    throw Error(options.model + ": holds none of best.safetensors, last.safetensors and model.safetensors; --model "
                                "takes the --out folder of train, or the folder of `xfc import`");
  if (files.vocabulary.empty() && exists(folder + folderVocabulary)) {
    files.vocabulary = folder + folderVocabulary;
    if (files.targetVocabulary.empty() && exists(folder + folderTargetVocabulary))
      files.targetVocabulary = folder + folderTargetVocabulary;
  }
  return files;
}

std::unique_ptr<Engine> loadEngine(const ModelOptions &options) {
  std::optional<PackedModel> packed = carried(options);
  std::unique_ptr<Engine> engine = makeEngine(options.threads, options.device);
  loadInto(*engine, options, packed);
  return engine;
}

Ensemble TranslationModel::models() const {
  std::vector<Engine *> engines = {engine.get()};
  for (const std::unique_ptr<Engine> &other : others)
    engines.push_back(other.get());
  const std::vector<double> shares = others.empty() ? std::vector<double>{1} : weights;
  Ensemble all(std::move(engines), shares, {draft.get(), draftTokens}, shortlist.get());
  for (const WorkerEngines &worker : workers) {
    std::vector<Engine *> members;
    members.reserve(worker.members.size());
    for (const std::unique_ptr<Engine> &member : worker.members)
      members.push_back(member.get());
    all.add({std::move(members), shares, {worker.draft.get(), draftTokens}, shortlist.get()});
  }
  return all;
}

void TranslationModel::addWorkers(int threads, int count) {
  const std::vector<int> each = threadsOfWorkers(threads, count);
  for (const int its : std::span(each).subspan(1)) {
    WorkerEngines &worker = workers.emplace_back();
    worker.members.push_back(engine->sharing(its));
    for (const std::unique_ptr<Engine> &other : others)
      worker.members.push_back(other->sharing(its));
    if (draft)
      worker.draft = draft->sharing(its);
  }
}

TranslationModel TranslationModel::sharing() const {
  const auto shared = [](const std::unique_ptr<Engine> &of) {
    return of ? of->sharing(of->pool().threads()) : nullptr;
  };
  const auto allShared = [&](const std::vector<std::unique_ptr<Engine>> &of) {
    std::vector<std::unique_ptr<Engine>> engines(of.size());
    std::ranges::transform(of, engines.begin(), shared);
    return engines;
  };
  TranslationModel model = {.engine = shared(engine),
                            .source = source,
                            .target = target,
                            .others = allShared(others),
                            .weights = weights,
                            .draft = shared(draft),
                            .draftTokens = draftTokens,
                            .shortlist = shortlist,
                            .rescorer = shared(rescorer),
                            .sourceFromEnd = sourceFromEnd,
                            .targetFromEnd = targetFromEnd};
  for (const WorkerEngines &worker : workers)
    model.workers.push_back({allShared(worker.members), shared(worker.draft)});
  return model;
}

namespace {

// A model beside the first, as `flag` takes it: where it is, and the library that has its code, which the option
// `libraryFlag` gives. Empty: this executable, and the option if there is none.
struct ModelBeside {
  std::string flag, path, library, libraryFlag;
};

// Throws Error if `beside` is to decode together with `module`, and does not fit it (null: it need not).
std::unique_ptr<Engine> loadBeside(const ModelOptions &first, const Module *module, const ModelBeside &beside,
                                   Metadata &metadata) {
  ModelOptions options = first;
  options.model = options.weights = options.packed = {};
  options.takePath(beside.path);
  options.device.library = beside.library;
  std::unique_ptr<Engine> engine = makeEngine(options.threads, options.device);
  if (module)
    requireFits(*module, engine->module(), beside.flag + " " + beside.path);
  std::optional<PackedModel> packed = carried(options);
  try {
    metadata = loadInto(*engine, options, packed);
  } catch (const OtherModel &other) {
    if (!beside.library.empty() || beside.libraryFlag.empty())
      throw;
    throw Error(other.what() + std::string("; a library of their model goes beside this executable with ") +
                beside.libraryFlag);
  }
  generationOf(engine->module(), options.model); // fails if the folder contradicts the code
  return engine;
}

// The models that decode together with the first.
std::vector<ModelBeside> membersOf(const ModelOptions &options) {
  options.checkLibraries(options.others.size());
  const std::vector<std::string> &libraries = options.ensembleLibraries;
  std::vector<ModelBeside> members;
  members.reserve(options.others.size());
  for (size_t i = 0; i < options.others.size(); ++i)
    members.push_back({"--model", options.others[i],
                       libraries.empty() || libraries[i] == thisExecutable ? "" : libraries[i], "--ensemble-library"});
  return members;
}

// Throws Error unless each of the models can read several tokens in a step, as a draft has them.
void requireSeveral(const Ensemble &models, const std::string &draft) {
  for (const Engine *engine : models.members())
    if (const Module &module = engine->module(); !module.readsSeveral())
      throw Error("--draft " + draft + ": model '" + module.model +
                  "' keeps a state from token to token, so that a step cannot read several; leave out --draft");
}

} // namespace

// Loads the model that rescores. Its weights say by the hash of their vocabulary whether it reads targets from their
// end; `searched` is the metadata of those that search.
static void loadRescorer(const ModelOptions &options, const Metadata &searched, TranslationModel &model) {
  Metadata metadata;
  model.rescorer = loadBeside(options, nullptr, {"--rescore", options.rescorer, "", ""}, metadata);
  for (const auto &[key, vocabulary, fromEnd] : {std::tuple{sourceVocabularyKey, &model.source, &model.sourceFromEnd},
                                                 {targetVocabularyKey, &model.target, &model.targetFromEnd}}) {
    const std::string &bytes = (*vocabulary)->bytes();
    const auto its = std::as_const(metadata).find(key), main = searched.find(key);
    if (its == metadata.end() || (bytes.empty() && main == searched.end()))
      continue; // nothing is known
    if (its->second == (bytes.empty() ? main->second : vocabularyHash(bytes)))
      continue;
    *fromEnd = !bytes.empty() && its->second == vocabularyHash(reversedVocabulary(bytes));
    if (!*fromEnd)
      throw Error(
          "--rescore: the weights of " + options.rescorer + " were trained with another vocabulary (hash " +
          its->second +
          ") than the model that searches; expected the same one, or the same from right to left, as `xfc vocab "
          "--right-left` makes it" +
          (bytes.empty() ? "; give --vocab, too" : ""));
  }
}

TranslationModel loadModel(const ModelOptions &given) {
  ModelOptions options = given;
  options.threads = threadsOfWorkers(given.threads, given.workers).front();
  const size_t count = 1 + options.others.size();
  if (!options.ensembleWeights.empty() && options.ensembleWeights.size() != count)
    throw Error("--ensemble-weights: expected one number for each --model, of which there are " +
                std::to_string(count) + ", but " + std::to_string(options.ensembleWeights.size()) + " were given");
  const std::vector<ModelBeside> members = membersOf(options);
  std::optional<PackedModel> packed = carried(options);
  TranslationModel model{makeEngine(options.threads, options.device), nullptr, nullptr, options.warn};
  std::vector<Metadata> metadata = {loadInto(*model.engine, options, packed)};
  const Module &module = model.engine->module();
  module.requireTranslator();
  generationOf(module, options.model); // fails if the folder contradicts this executable
  model.weights = options.ensembleWeights.empty() ? std::vector<double>(count, 1) : options.ensembleWeights;
  for (const ModelBeside &member : members)
    model.others.push_back(loadBeside(options, &module, member, metadata.emplace_back()));
  if (!options.draft.empty()) {
    const ModelBeside drafting{"--draft", options.draft, options.draftLibrary, "--draft-library"};
    model.draft = loadBeside(options, &module, drafting, metadata.emplace_back());
    model.draftTokens = options.draftTokens;
    requireSeveral(model.models(), options.draft);
  }

  LoadedVocabularies vocabularies = vocabulariesOf(options, packed, module);
  model.source = std::move(vocabularies.source);
  model.target = std::move(vocabularies.target);
  for (size_t i = 0; i < metadata.size(); ++i)
    for (auto [key, vocabulary] : {std::pair{sourceVocabularyKey, model.source}, {targetVocabularyKey, model.target}}) {
      const std::string member = i == 0 ? "" : (i < count ? options.others[i - 1] : options.draft) + ": ";
      const char *advice =
          i == 0 ? "give that one, which train keeps in its folder, or --force-vocab to use this one anyway"
                 : "models that decode together need the same vocabulary; --force-vocab uses this one anyway";
      unlessForced(options.forceVocabulary, "--force-vocab", options.warn, [&] {
        checkVocabulary(metadata[i], key, vocabulary->bytes(), member + vocabulary->name(), advice);
      });
    }
  if (!options.shortlist.file.empty())
    model.shortlist =
        std::make_unique<const Shortlist>(options.shortlist, LoadedVocabularies{model.source, model.target});
  if (!options.rescorer.empty())
    loadRescorer(given, metadata.front(), model); // which runs when no worker does
  model.addWorkers(given.threads, given.workers);
#ifdef __GLIBC__
  malloc_trim(0); // reading vocabularies takes several times the memory that they keep
#endif
  return model;
}

LoadedVocabularies loadVocabularies(const ModelOptions &options, const Module &module) {
  const bool named = options.model.empty() && !options.vocabulary.empty();
  return vocabulariesOf(options, named ? std::nullopt : carried(options), module);
}

// How many tokens of its own a source line of this format may have; 0: any number.
static int64_t longestLine(const TranslationModel &model, Format format) {
  const Module &module = model.engine->module();
  const Frame frame = model.source->sourceFrame(module, format);
  const auto around = static_cast<int64_t>(frame.prefix.size() + frame.suffix.size());
  return module.maxLength > 0 ? std::max<int64_t>(module.maxLength - around, 1) : 0;
}

std::vector<int32_t> encodeSource(const TranslationModel &model, const std::string &line, Format format,
                                  const std::string &where) {
  const Module &module = model.engine->module();
  std::vector<int32_t> ids = model.source->encode(line, format, where, module.maxLength);
  if (ids.empty())
    return ids;
  return framed(cut(std::move(ids), longestLine(model, format), where, model.warn),
                model.source->sourceFrame(module, format));
}

bool fits(const TranslationModel &model, std::string_view line, int64_t most) {
  if (const int64_t longest = longestLine(model, Format::Text); longest > 0)
    most = most > 0 ? std::min(most, longest) : longest;
  return most == 0 || static_cast<int64_t>(model.source->encode(line, Format::Text, "", most).size()) <= most;
}

std::vector<std::string_view> fittingParts(const TranslationModel &model, std::string_view line, int64_t most) {
  return partsThatFit(line, [&](std::string_view part) { return fits(model, part, most); });
}

std::vector<int32_t> encodeTarget(const TranslationModel &model, const std::string &line, Format format,
                                  const std::string &where) {
  const Module &module = model.engine->module();
  std::vector<int32_t> ids = model.target->encode(line, format, where, module.maxTargetLength);
  if (const std::vector<int32_t> prefix = model.target->targetPrefix(format); !ids.empty())
    ids.insert(ids.begin(), prefix.begin(), prefix.end());
  return cut(std::move(ids), std::max<int64_t>(module.maxTargetLength - 1, 0), where, model.warn);
}

std::vector<int32_t> encodePrefix(const TranslationModel &model, const std::string &line, const SearchOptions &options,
                                  Format format, const std::string &where) {
  const Module &module = model.engine->module();
  std::vector<int32_t> prefix = encodeTarget(model, line, format, where);
  // forcedFirst, if it is set, replaces the prefix of the vocabulary. Without it, a prefix that begins with start says
  // what the search does in any case.
  const std::vector<int32_t> own = model.target->targetPrefix(format);
  const auto given = std::ranges::mismatch(own, prefix).in2;
  if (!options.generation.forcedFirst.empty())
    prefix.erase(prefix.begin(), given);
  else if (!own.empty() && own.front() == module.start && given != prefix.begin())
    prefix.erase(prefix.begin());
  for (int32_t id : prefix)
    if (id == module.pad || id == module.start || id == module.eos)
      throw Error(where + ": a prefix cannot hold token " + std::to_string(id) + " (pad, start or eos)");
  return prefix;
}

std::vector<Constraint> encodeConstraints(const TranslationModel &model, const std::vector<ConstraintText> &texts,
                                          Format format, const std::string &where) {
  const Module &module = model.engine->module();
  const int32_t unknown = format == Format::Ids ? -1 : model.target->special().unk;
  std::vector<Constraint> constraints;
  size_t tokens = 0;
  for (const ConstraintText &phrases : texts) {
    Constraint &constraint = constraints.emplace_back();
    const std::string which = where + ": constraint " + std::to_string(constraints.size());
    if (phrases.empty())
      throw Error(which + " has no phrase; expected one, or several of which one is enough");
    for (const std::string &phrase : phrases) {
      const std::vector<int32_t> &ids = constraint.emplace_back(model.target->encode(phrase, format, which));
      if (ids.empty())
        throw Error(which + (phrases.size() > 1 ? ": one of its phrases is empty" : " is empty") +
                    "; expected at least one token");
      for (int32_t id : ids)
        if (id == module.pad || id == module.start || id == module.eos)
          throw Error(which + ": a phrase cannot hold token " + std::to_string(id) + " (pad, start or eos)");
        else if (unknown >= 0 && id == unknown)
          throw Error(which + ": " + inQuotes(phrase, 40) +
                      " has a part that the vocabulary does not know; expected text for which it has pieces");
      tokens += ids.size();
      if (tokens > mostConstraintTokens)
        throw Error(where + ": the constraints have more than " + std::to_string(mostConstraintTokens) +
                    " tokens, which is the limit for a sentence; give fewer or shorter phrases");
    }
  }
  return constraints;
}

SearchOptions searchOptionsOf(const std::vector<std::string> &words, const SearchOptions &defaults,
                              const TranslationModel &model) {
  SearchFlags flags;
  flags.options = defaults;
  CommandLine line;
  flags.addAllTo(line);
  parseOptions(line, words);
  flags.resolve(defaults.generation, *model.target);
  return flags.options;
}

std::string decodeTarget(const TranslationModel &model, const std::vector<int32_t> &ids, const SearchOptions &options,
                         Format format, std::span<const std::string> replacements) {
  const size_t forced = format == Format::Text ? std::min(options.generation.forcedFirst.size(), ids.size()) : 0;
  const int32_t unk = model.target->special().unk;
  std::vector<std::string> unknowns;
  for (size_t i = forced; i < replacements.size(); ++i)
    if (ids[i] == unk)
      unknowns.push_back(replacements[i]);
  return model.target->decode({ids.begin() + static_cast<std::ptrdiff_t>(forced), ids.end()}, format, unknowns);
}

} // namespace xfc
