// The training loop: turns batches into steps, and writes weights, states and a log into the run's folder.
#include "train/Trainer.h"
#include "decode/Defaults.h"
#include "engine/Identity.h"
#include "engine/Safetensors.h"
#include "plan/Memory.h"
#include "plan/Programs.h"
#include "ranks/Ranks.h"
#include "support/Checksum.h"
#include "support/Files.h"
#include "support/Format.h"
#include "support/Inputs.h"
#include "support/Json.h"
#include "support/Progress.h"
#include "support/Quoted.h"
#include "support/Signals.h"
#include "support/Terminal.h"
#include "text/Metrics.h"
#include "text/Shard.h"
#include "text/WordAlignment.h"
#include "trace/Trace.h"
#include "train/Checkpoint.h"
#include "train/EventFile.h"
#include "train/Log.h"
#include "train/Prepare.h"
#include "train/States.h"
#include "train/Update.h"
#include "train/Validation.h"
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int64_t recordEvery = 10; // steps between records of the log

std::string megabytes(int64_t bytes) { return format("%.0f MB", static_cast<double>(bytes) / 1e6); }

// d_model, for the Noam schedule.
int64_t modelWidth(const Module &module) {
  const std::optional<nlohmann::json> description = jsonIn(module.description);
  if (description && description->is_object() && description->contains("params") &&
      description->at("params").contains("d_model"))
    return description->at("params").at("d_model");
  return module.parameters.empty() ? 1 : module.parameters[0].shape.back();
}

SearchOptions greedy(const Module &module) {
  SearchOptions options;
  options.generation = generationOf(module);
  options.generation.beam = 1;
  return options;
}

// Whether each file is a corpus with its own share of an epoch.
bool mixes(const TrainOptions &options) { return !options.corpusWeights.empty() || options.corpusTemperature > 0; }

constexpr size_t sampleCount = 5; // translations shown per validation

class Trainer {
public:
  Trainer(const TrainOptions &options, const std::string &configuration, Ranks &ranks);
  void run();

private:
  void setUp();
  void checkFolder() const;
  void compareCalls();
  void compareData();
  void compare(const Json &facts);
  void compareDraws();
  void loadVocabularies();
  void prepareData();
  bool isLarge() const;
  std::string factsOfData() const;
  void readCorpora();
  void checkLinks();
  void checkDistillation();
  void mixCorpora();
  std::string mixtureText() const;
  EpochSampling sampling() const;
  std::string samplingText() const;
  uint64_t hashOfValidation() const;
  std::vector<std::string> programsOfSteps() const;
  Counts countsFor(int64_t tokens) const;
  int64_t bytesOfLists(int64_t tokens) const;
  Memory memoryFor(int64_t tokens) const;
  void chooseBatchTokens();
  void planBatches();
  void reserve();
  void begin();
  void beginFolder();
  void shareRun();
  void initialize();
  void resume();
  void decide();
  bool step();
  void traceNextStep();
  void finishTrace();
  void write(const Json &record);
  void record();
  void validate();
  void validateNow(bool average);
  void saveState();
  void saveAveraged(const std::string &name);
  void saveWeights(const std::string &name);
  void keepWeights();
  void keepBest(double value);
  void forgetMissing();
  void save(bool requested = false);
  void average();
  void end();
  bool finished() const;
  bool lastEpochDone(Batches::Position position) const;
  bool goesBeyondPool() const;
  double fractionDone() const;
  double seconds() const { return progress.seconds + std::chrono::duration<double>(Clock::now() - started).count(); }
  const Module &module() const { return model.engine->module(); }
  double rate() const { return progress.rateScale * schedule.at(progress.step); }
  std::string logFile() const { return options.log.empty() ? folder.file("train.jsonl") : options.log; }
  std::string placeOf(const Parameter &parameter) const;
  // Why a step was not taken: a description, and fields for the log.
  struct Fault {
    std::string what;
    Json record;
  };
  Fault whatIsNotFinite(const UpdateResult &result);
  std::string badGradient();
  [[noreturn]] void stopNotFinite(const Fault &fault, const std::string &also = "");
  void fallBack(const Fault &fault);
  // All ranks run the same steps and save together; only the first one writes files and messages.
  bool writes() const { return ranks.isFirst(); }
  int64_t batchesOfStep() const { return options.accumulate * ranks.size(); }

  const TrainOptions &options;
  std::string configuration;
  Ranks &ranks;
  int64_t batchTokens;
  RunFolder folder;
  ProgressBar bar;
  TranslationModel model;
  PairFiles text;                    // as in the options, or made from them by prepareData(),
  std::vector<std::string> prepared; // which may also turn it into files of pairs
  std::optional<Corpus> corpus, validation;
  Mixture mixture;       // of several corpora
  bool isGuided = false; // by the links of the corpus
  std::vector<std::string> validLines, validReferences;
  std::optional<EncodedLines> validSources; // if the model can decode; this rank's share
  std::optional<Batches> batches;
  // The batches of a step; kept between steps, so that steps do not allocate.
  struct Group {
    std::vector<PairsOfCorpus> batches;
    size_t count = 0;
    Batches::Position end; // the position after them
    std::span<const PairsOfCorpus> span() const { return std::span(batches).first(count); }
  } group, upcoming;
  void take(Group &group);
  std::optional<Update> update;
  std::optional<States> states;
  std::optional<TrainingLog> log;
  std::optional<EventFile> events;
  std::optional<Trace> trace; // reset once it is written
  Schedule schedule;
  Progress progress;
  Clock::time_point started = Clock::now();
  int64_t savedStep = -1; // of the state on disk
  bool changed = true;    // whether there was progress since then
  std::string unlogged;   // why a record could not be written; "" if all were
  bool stopping = false;  // because of a signal, or of what could not be logged
  bool timeIsUp = false, saveWanted = false;
  int64_t keptWeights() const { return std::max(options.keep, options.average); }

  // Sums since the last record.
  struct Window {
    double loss = 0, nll = 0, alignment = 0, norm = 0;
    int64_t labels = 0, steps = 0;
    Clock::time_point from = Clock::now();
  } window;
};

Trainer::Trainer(const TrainOptions &options, const std::string &configuration, Ranks &ranks)
    : options(options), configuration(configuration), ranks(ranks), batchTokens(options.batchTokens),
      folder(options.out), bar(options.quiet || !writes()), text(options.text), prepared(options.data) {
  isUpdated(options.out);
  isUpdated(logFile());
  for (const auto &[option, file] : {std::pair{"--trace", options.trace}, {"--log", options.log}})
    if (!file.empty() && folder.keeps(file))
      throw Error(std::string(option) + ": " + file +
                  ": the run keeps a file of its own under this name; name another file");
  if (!options.trace.empty()) {
    if (canonicalPath(options.trace) == canonicalPath(logFile()))
      throw Error("--trace: " + options.trace + ": is the log of the run; name another file");
    announceOutput(options.trace);
  }
  compareCalls();
  ranks.together([this] { setUp(); });
  prepareData();
  ranks.together([&] {
    readCorpora();
    if (options.memory > 0)
      chooseBatchTokens();
  });
  // Ranks may have different thread counts, but all must use the same batches: take the minimum.
  if (options.memory > 0)
    batchTokens = -ranks.largest(static_cast<int>(-batchTokens));
  ranks.together([this] {
    planBatches();
    reserve();
  });
  compareData();
  update->join();
  begin();
}

void Trainer::setUp() {
  if (writes()) {
    if (exists(options.out) && !folder.isFolder())
      throw Error(options.out + ": is a file; --out is a folder to train into");
    if (folder.isFolder())
      folder.lock();
    checkFolder();
  }
  int threads = options.threads;
  if (threads == 0 && ranks.sharers() > 1)
    threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks.sharers());
  DeviceChoice device = options.device;
  device.ordinal = ranks.onHost(); // ranks on one machine use one GPU each
  model.engine = makeEngine(threads, device);
  module().requireTranslator();
  // Damage to a program would otherwise show only when it first runs, perhaps after hours.
  module().programs.readAll();
  update.emplace(*model.engine, &ranks);
  if (!options.groups.empty())
    update->trainInGroups(TrainedGroups(module(), options.groups), *options.optimizer);
  update->shareStates(*options.optimizer);
  states.emplace(*model.engine, *options.optimizer, ranks, &*update);
  loadVocabularies();
}

static std::string hexOf(uint64_t hash) { return format("%016llx", static_cast<unsigned long long>(hash)); }

// The kinds of facts that ranks compare.
constexpr const char *flag = "flag --", *data = "data: ";

static uint32_t sumOf(const std::vector<std::string> &lines) {
  uint32_t sum = 0;
  for (const std::string &line : lines)
    sum = crc32c("\n", crc32c(line, sum));
  return sum;
}

// Identifies the held-out text, ids and lines; 0 if there is none.
uint64_t Trainer::hashOfValidation() const {
  if (!validation)
    return 0;
  CorpusTotals hash = validation->totals();
  hash.mix(sumOf(validLines));
  hash.mix(sumOf(validReferences));
  return hash.hash;
}

// Finds different executables and flags before anything else: they decide which exchanges a rank takes part in.
void Trainer::compareCalls() {
  if (ranks.size() == 1)
    return;
  Json facts = Json::object();
  ranks.together([&] {
    facts["executable"] = checksumOf(MappedFile("/proc/self/exe").contents());
    facts[std::string(flag) + "resume"] = options.resume ? "true" : ""; // before the flags that it takes from the run
    // Ranks may read files at different paths, and may have different numbers of cores.
    const std::set<std::string> own = {
        "threads",      "source",       "target",    "tsv",          "data-weighting", "guided-alignment",
        "valid-source", "valid-target", "valid-tsv", "vocab",        "target-vocab",   "config",
        "data",         "init",         "teacher",   "teacher-model"};
    const Json flags = parseOrderedJson(configuration, "config.json");
    for (const auto &[name, value] : flags.items())
      if (!own.contains(name))
        facts[flag + name] = value.is_string() ? value.get<std::string>() : value.dump();
    if (!options.trace.empty()) // the traces are combined once all ranks have reached the same step
      facts[std::string(flag) + "trace-steps"] =
          std::to_string(options.traceFirst) + ":" + std::to_string(options.traceLast);
  });
  compare(facts);
}

// Finds differences in what was read that would let ranks compute different results, before the first step.
void Trainer::compareData() {
  if (ranks.size() == 1)
    return;
  Json facts = Json::object();
  ranks.together([&] {
    const Device &device = model.engine->device();
    facts[device.isHost() ? "instruction set" : "GPU"] = device.name();
    auto fact = [&](const char *what, uint64_t hash) { facts[std::string(data) + what] = hexOf(hash); };
    fact("training text", corpus->totals().hash);
    fact("validation text", validation ? validation->totals().hash : 0);
    fact("validation sources", sumOf(validLines));
    fact("validation references", sumOf(validReferences));
    fact("source vocabulary", crc32c(model.source->bytes()));
    fact("target vocabulary", crc32c(model.target->bytes()));
  });
  compare(facts);
  if (!options.resume) // before any file is written; a resumed run first finds its position
    compareDraws();
}

// Ends all ranks if they have different facts, with a message that names two ranks.
void Trainer::compare(const Json &facts) {
  const std::vector<std::string> all = ranks.gather(facts.dump());
  const Json first = parseOrderedJson(all[0], "the first rank");
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const Json theirs = parseOrderedJson(all[rank], "a rank");
    Json keys = first;
    keys.update(theirs);
    for (const auto &[key, unused] : keys.items()) {
      const std::string a = first.value(key, ""), b = theirs.value(key, "");
      if (a == b)
        continue;
      auto side = [&](int of, const std::string &value) {
        if (key.starts_with(flag))
          return ranks.nameOf(of) + " was given " + (value.empty() ? "no " : "") + key.substr(5) +
                 (value.empty() || value == "true" ? "" : " " + value);
        const std::string what = key.starts_with(data) ? key.substr(6) : key;
        return ranks.nameOf(of) + " has the " + what + " " + (value.empty() ? "unknown" : value);
      };
      throw CommonError(side(rank, b) + ", " + side(0, a) +
                        "; all processes of a run need the same executable, flags and data");
    }
  }
}

void Trainer::checkFolder() const {
  if (!options.resume && !folder.empty())
    throw Error(options.out + ": the folder is not empty; continue its run with --resume, or train into a new folder");
  if (options.resume && !folder.hasState())
    if (std::string name = folder.anyWeights(); !name.empty())
      throw Error(options.out + ": " + name +
                  " is there, but no state/ to continue from; train into a new folder, or move the weights away to "
                  "start over in this one");
}

void Trainer::loadVocabularies() {
  LoadedVocabularies loaded = xfc::loadVocabularies(options.vocabulary, options.targetVocabulary, module());
  model.source = std::move(loaded.source);
  model.target = std::move(loaded.target);
}

// Bytes of the text; compressed files usually hold about four times their size.
static int64_t sizeOf(const PairFiles &text) {
  int64_t bytes = 0;
  for (const std::vector<std::string> *files : {&text.sources, &text.targets, &text.tables})
    for (const std::string &file : *files) {
      std::error_code none;
      if (!std::filesystem::is_regular_file(file, none))
        continue; // a stream can be read only once
      const auto size = static_cast<int64_t>(std::filesystem::file_size(file, none));
      bytes += isCompressed(file) ? 4 * size : size;
    }
  return bytes;
}

bool Trainer::isLarge() const { return prepared.empty() && sizeOf(text) > options.textMemory; }

// What the files that prepareData() writes are made from.
std::string Trainer::factsOfData() const {
  Json facts = Json::object();
  const Json flags = parseOrderedJson(configuration, "config.json");
  for (const char *flag :
       {"teacher", "teacher-model", "teacher-n-best", "teacher-distribution", "format", "source-prefix",
        "target-prefix", "data-weighting-type", "tsv-weighting", "guided-alignment-type", "filter-length",
        "filter-ratio", "corpus-weight", "corpus-temperature", "text-memory", "sentencepiece-alphas"})
    if (flags.contains(flag))
      facts[flag] = flags[flag];
  facts["vocabularies"] = {model.source->hash(), model.target->hash()};
  const PairFiles &given = options.text;
  for (const std::vector<std::string> *files :
       {&given.sources, &given.targets, &given.tables, &given.weights, &given.alignments})
    for (const std::string &file : *files) {
      std::error_code none;
      facts["files"].push_back({file, std::filesystem::file_size(file, none),
                                std::filesystem::last_write_time(file, none).time_since_epoch().count()});
    }
  return facts.dump(2) + "\n";
}

// How many tokens of a teacher the executable takes for each label.
static std::string takenBy(int64_t tokens) {
  return tokens == 0 ? "this executable was compiled without --distillation"
                     : "this executable takes " + std::to_string(tokens);
}

// Has the teacher make the data, and prepares text that is too large for memory. The first rank writes the files into
// the run's folder, where all ranks read them. A resumed run uses those that are there if they were made from the same
// text.
void Trainer::prepareData() {
  const TeacherOptions &teacher = options.teacher;
  ranks.together([&] {
    if (!writes() || !(teacher.any() || isLarge()))
      return;
    if (const int64_t taken = teacherTokens(module()); teacher.distribution > taken)
      throw Error("--teacher-distribution " + std::to_string(teacher.distribution) + ": " + takenBy(taken) +
                  "; compile the model again with `xfc compile --distillation " + std::to_string(teacher.distribution) +
                  "`");
    const std::string facts = factsOfData(), factsFile = folder.file("data.json");
    makeFolder(options.out);
    folder.lock();
    checkFolder();
    if (options.resume)
      folder.removePartial();
    const bool made = options.resume && exists(factsFile) && readFile(factsFile) == facts;
    if (!made) // a part of the files may be made, and then not belong to these facts
      std::filesystem::remove(factsFile);
    const TeacherRun run{options.format, options.threads, options.quiet};
    if (teacher.nBest > 0) {
      const std::string table = folder.file("distilled.tsv");
      text = made ? PairFiles{.sources = {}, .targets = {}, .tables = {table}, .weightColumn = teacher.nBest > 1}
                  : translateByTeacher(teacher, options.text.sources, table, run);
    }
    if (teacher.distribution > 0) {
      prepared = {folder.file("taught.pairs")};
      if (!made)
        prepareByTeacher(teacher, text, options.filter, prepared.front(), run);
    }
    if (isLarge()) {
      const std::vector<PairFiles> corpora = mixes(options) ? text.each() : std::vector{text};
      for (size_t i = 0; i < corpora.size(); ++i) {
        prepared.push_back(folder.file(format("text-%zu.pairs", i + 1)));
        if (!made)
          preparePairs(prepared.back(), corpora[i], options.filter, {*model.source, *model.target}, *model.engine,
                       options.format, bar, sampling().any());
      }
    }
    if (made)
      return;
    for (const std::string &file : prepared) // the facts vouch for it
      const Shard readable(file, {*model.source, *model.target}, module());
    writeFile(factsFile, facts);
  });
  if (ranks.size() == 1)
    return;
  const Json first = parseOrderedJson(
      ranks.broadcast(Json{{"tables", text.tables}, {"weights", text.weightColumn}, {"data", prepared}}.dump()),
      "the first rank");
  if (teacher.nBest > 0)
    text = {.sources = {},
            .targets = {},
            .tables = first["tables"].get<std::vector<std::string>>(),
            .weightColumn = first["weights"].get<bool>()};
  if (options.data.empty())
    prepared = first["data"].get<std::vector<std::string>>();
}

void Trainer::readCorpora() {
  auto readAll = [](const std::vector<std::string> &files, std::vector<std::string> &lines) {
    for (const std::string &file : files)
      for (std::string &line : readLines(file))
        lines.push_back(std::move(line));
  };
  const VocabularyPair vocabularies{*model.source, *model.target};
  const Parallel parallel = onThreadsOf(*model.engine);
  const std::vector<PairFiles> corpora = mixes(options) ? text.each() : std::vector{text};
  if (prepared.empty())
    corpus.emplace(corpora, vocabularies, module(), options.format, options.filter, parallel, sampling());
  else
    corpus.emplace(prepared, vocabularies, module(), sampling(), parallel);
  checkDistillation();
  checkLinks();
  if (const PairFiles &held = options.validation; !(held.sources.empty() && held.tables.empty())) {
    validation.emplace(held, vocabularies, module(), options.format, PairFilter(), parallel);
    readAll(held.sources, validLines);
    readAll(held.targets, validReferences);
    std::vector<std::string> both;
    readAll(held.tables, both);
    for (const std::string &line : both) { // each has a tab: reading the corpus has checked that
      validLines.push_back(line.substr(0, line.find('\t')));
      validReferences.push_back(line.substr(line.find('\t') + 1));
    }
    if (model.engine->has(programs::encode) && model.engine->has(programs::decodeStep))
      validSources.emplace(dealtOut(
          EncodedLines(model, validLines, options.format, held.tables.empty() ? held.sources[0] : held.tables[0]),
          ranks));
  }
  const CorpusTotals &totals = corpus->totals();
  bar.say(format("%zu %spairs, %lld source and %lld target tokens; skipped: ", corpus->size(),
                 corpus->hasWeights() ? "weighted " : "", static_cast<long long>(totals.tokens[XFC_SOURCE]),
                 static_cast<long long>(totals.tokens[XFC_TARGET])) +
          skippedOf(totals));
  if (const std::string note = unalignedOf(corpus->unalignedWords()); !note.empty())
    bar.say(note);
  for (const std::string &note : VocabularyPair{*model.source, *model.target}.notes())
    bar.say(note);
  if (mixes(options))
    mixCorpora();
  if (options.best != "loss" && !validSources)
    throw Error("--best " + options.best +
                " compares translations; it needs --valid-source and --valid-target, and a model that can decode");
}

// --distillation needs distributions in the data, and an executable that takes as many tokens as they have.
void Trainer::checkDistillation() {
  const std::vector<int64_t> tokens = corpus->tokensPerLabel();
  const int64_t most = *std::ranges::max_element(tokens), taken = teacherTokens(module());
  if (options.distillation == 0) {
    if (most > 0)
      bar.say("note: the distributions of a teacher in --data are not used; --distillation W gives them a share of the "
              "loss");
    return;
  }
  if (most == 0)
    throw Error("--distillation: no file of --data has the distributions of a teacher; make one with the teacher's "
                "executable: `prepare --model TEACHER --distribution K`");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] > taken)
      throw Error(
          prepared[i] + ": has " + std::to_string(tokens[i]) + " tokens of a teacher for each label, but " +
          takenBy(taken) + "; compile the model again with `xfc compile --distillation " + std::to_string(most) + "`" +
          (taken == 0 ? "" : ", or make the file again with `prepare --distribution " + std::to_string(taken) + "`"));
}

// Links in files need an executable that takes as many, and either all files have links or none has.
void Trainer::checkLinks() {
  const std::vector<int64_t> links = corpus->linksPerLabel();
  const auto most = std::ranges::max_element(links);
  const int64_t taken = linksPerLabel(module());
  isGuided = *most > 0 && taken > 0;
  if (options.guided && *most == 0)
    throw Error("--guided-alignment-weight: no file of --data has word alignments; make them again with `prepare "
                "--guided-alignment`");
  if (options.guided && taken == 0)
    throw Error("--guided-alignment-weight: this executable was compiled without --guided-alignment and takes no "
                "links; compile the model again with `xfc compile --guided-alignment " +
                std::to_string(*most) + "`");
  if (*most > 0 && taken == 0)
    bar.say("note: the word alignments in --data are not used, because this executable was compiled without "
            "--guided-alignment");
  for (size_t i = 0; isGuided && i < links.size(); ++i) {
    if (links[i] == 0)
      throw Error(prepared[i] + ": has no word alignments, but " + prepared[most - links.begin()] +
                  " has; make it again with `prepare --guided-alignment`, where an empty line is a pair without links");
    if (links[i] > taken)
      throw Error(prepared[i] + ": its target tokens may have " + std::to_string(links[i]) +
                  " links, but this executable takes " + std::to_string(taken) +
                  "; compile the model again with `xfc compile --guided-alignment " + std::to_string(*most) +
                  "`, or make the file again with `prepare` of this executable");
  }
}

void Trainer::mixCorpora() {
  const std::vector<int64_t> sizes = corpus->sizes();
  mixture = options.corpusWeights.empty() ? mixtureByTemperature(sizes, options.corpusTemperature)
                                          : mixtureByWeight(sizes, options.corpusWeights);
  const PairFiles &text = options.text;
  const std::vector<std::string> &files = !options.data.empty() ? options.data
                                          : text.tables.empty() ? text.sources
                                                                : text.tables;
  for (size_t i = 0; i < sizes.size(); ++i)
    bar.say(format("%s: %lld pairs, an epoch has %lld of them (%.3g times the corpus)", files[i].c_str(),
                   static_cast<long long>(sizes[i]), static_cast<long long>(mixture.quotas[i]),
                   static_cast<double>(mixture.quotas[i]) / static_cast<double>(sizes[i])));
}

// The mixture that a resumed run must repeat; "" if the corpora are not mixed.
std::string Trainer::mixtureText() const {
  if (mixture.empty())
    return "";
  std::string text = options.corpusWeights.empty() ? format("--corpus-temperature %.17g", options.corpusTemperature)
                                                   : "--corpus-weight";
  for (double weight : options.corpusWeights)
    text += format(" %.17g", weight);
  text += " of corpora of";
  for (int64_t size : mixture.sizes)
    text += " " + std::to_string(size);
  return text + " pairs";
}

EpochSampling Trainer::sampling() const {
  EpochSampling sampling{.seed = options.seed};
  if (!options.segmentationAlphas.empty())
    std::ranges::copy(std::array{options.segmentationAlphas.front(), options.segmentationAlphas.back()},
                      sampling.alphas);
  return sampling;
}

// The sampling that a resumed run must repeat; "" if the text keeps its best segmentation.
std::string Trainer::samplingText() const {
  const EpochSampling used = sampling();
  return used.any() ? "--sentencepiece-alphas " + Json(used.alphas[0]).dump() + " " + Json(used.alphas[1]).dump() : "";
}

void Trainer::planBatches() {
  batches.emplace(*corpus, batchTokens, options.seed, mixture);
  if (!options.resume) // reads its first pairs now: files that are damaged are refused before anything is written
    batches->seek(progress.position);

  schedule = {
      options.schedule,     options.rate > 0 ? options.rate : options.schedule == Schedule::Kind::Noam ? 1 : 5e-4,
      options.warmup,       options.steps,
      modelWidth(module()), options.restarts};
  if (schedule.steps < 0 && schedule.endsWithRun()) // counting an epoch's batches takes a pass through all data
    if (__builtin_mul_overflow(std::max<int64_t>(options.epochs, 0),
                               (batches->batchesOfEpoch() + batchesOfStep() - 1) / batchesOfStep(), &schedule.steps))
      schedule.steps = std::numeric_limits<int64_t>::max();
}

std::vector<std::string> Trainer::programsOfSteps() const {
  std::vector<std::string> programs = {programs::lossAndGradients, options.optimizer->program};
  if (options.accumulate > 1 && ranks.size() == 1)
    programs.push_back(programs::accumulate);
  if (validation)
    programs.push_back(programs::score);
  return programs;
}

// The counts of the largest batch.
Counts Trainer::countsFor(int64_t tokens) const {
  const Counts counts = largestBatch(*corpus, tokens, mixture);
  return validation ? larger(counts, largestBatch(*validation, tokens)) : counts;
}

// What the lists of the pairs in the batches of two steps take: this one's and the next one's, of which `Update` has
// copies. A batch is full on the longer side at most, so this many pairs are in one on average over an epoch.
int64_t Trainer::bytesOfLists(int64_t tokens) const {
  const CorpusTotals &totals = corpus->totals();
  const int64_t longer = std::max({totals.tokens[XFC_SOURCE], totals.tokens[XFC_TARGET], int64_t(1)});
  const double share = static_cast<double>(tokens) / static_cast<double>(longer),
               pairs = std::min(share, 1.0) * static_cast<double>(totals.pairs);
  constexpr int64_t growth = 2, block = 16; // a vector's spare room, and what an allocation takes besides
  const auto list = static_cast<int64_t>(sizeof(PairsOfCorpus)),
             numbers = static_cast<int64_t>(std::ceil(pairs)) * static_cast<int64_t>(sizeof(int64_t)) + block,
             losses = 3 * static_cast<int64_t>(sizeof(double));
  return product({batchesOfStep(), 2 * (growth * list + numbers) + 2 * (list + numbers) + growth * losses});
}

Memory Trainer::memoryFor(int64_t tokens) const {
  Engine &engine = *model.engine;
  const int threads = engine.device().isHost() ? engine.pool().threads() : 0;
  Memory memory = predictMemory(module(), programsOfSteps(), countsFor(tokens), threads);
  if (validSources)
    memory = larger(memory, predictMemory(module(), {programs::encode, module().stepProgram(1)->name},
                                          searchCounts(module(), validSources->sources, greedy(module())), threads));
  if (const Sharding *sharing = update->sharing()) // whichever rank has the most
    memory.states =
        static_cast<int64_t>(options.optimizer->states.size()) * sharing->largestShare() * bytesOf(module().type);
  memory.held += update->bytesOfSum();
  if (engine.device().isHost())
    memory.held += bytesOfLists(tokens);
  return memory;
}

// Finds the largest batches for which --memory has room, in multiples of 16 tokens.
void Trainer::chooseBatchTokens() {
  constexpr int64_t unit = 16;
  const CorpusTotals totals = corpus->bounds();
  // Batches larger than all data need no more memory.
  int64_t fits = 0,
          tooMany =
              std::min(std::max(totals.tokens[XFC_SOURCE], totals.tokens[XFC_TARGET]), int64_t(1) << 24) / unit + 2;
  while (tooMany - fits > 1) {
    const int64_t middle = fits + (tooMany - fits) / 2;
    (memoryFor(middle * unit).total() <= options.memory ? fits : tooMany) = middle;
  }
  if (fits == 0)
    throw Error("--memory: training needs " + megabytes(memoryFor(unit).total()) +
                " with the smallest batches; give at least that much");
  batchTokens = fits * unit;
}

// Allocates all memory of the steps up front, so that a run that has started does not fail for lack of memory.
void Trainer::reserve() {
  Engine &engine = *model.engine;
  // Lines of text, batches of pairs, records, and buffers of files take some memory of the host that is not planned.
  const int64_t needed = memoryFor(batchTokens).total(), available = engine.device().available(),
                unplanned = engine.device().isHost() ? int64_t(16) << 20 : 0;
  if (available > 0 && needed + unplanned > available)
    throw Error("training needs " + megabytes(needed + unplanned) + " of memory, but the " +
                std::string(engine.device().isHost() ? "system" : "GPU") + " has " + megabytes(available) +
                " left; use a smaller --batch-tokens (with --accumulate for the same step) or a smaller model");
  for (const std::string &program : programsOfSteps())
    engine.reserve(program, countsFor(batchTokens));
  bar.say(format("model %s: %.2f million parameters; %s of memory; %s", module().model.c_str(),
                 static_cast<double>(module().parameterElements) / 1e6, megabytes(needed).c_str(),
                 engine.device().isHost() ? (std::to_string(engine.pool().threads()) + " threads").c_str()
                                          : engine.device().name().c_str()));
  if (options.memory > 0) { // what a resumed run uses, on any machine
    Json used = parseOrderedJson(configuration, "config.json");
    used.erase("memory");
    used["batch-tokens"] = batchTokens;
    configuration = used.dump(2) + "\n";
    bar.say(format("batches of %lld tokens (--batch-tokens)", static_cast<long long>(batchTokens)));
  }
}

void Trainer::begin() {
  for (int rank = 0; ranks.size() > 1 && rank < ranks.size(); ++rank)
    bar.say(ranks.nameOf(rank));
  ranks.together([this] {
    if (writes())
      beginFolder();
    if (!options.trace.empty())
      trace.emplace(model.engine->pool().threads());
  });
  shareRun();
  if (options.halveRate && savedStep < 0) // the first steps can fall back to this
    saveState();
  started = Clock::now();
}

// Brings all ranks to the first rank's state.
void Trainer::shareRun() {
  shareWeights(*model.engine, ranks);
  states->beginAverage();
  folder.shareStates(*states);
  if (ranks.size() > 1) {
    progress = progressOf(ranks.broadcast(textOf(progress)));
    ranks.broadcast(&savedStep, sizeof(savedStep));
    ranks.broadcast(&changed, sizeof(changed));
  }
  compareDraws();
}

// Ranks whose C libraries differ may draw other segmentations.
void Trainer::compareDraws() {
  Json drawn = Json::object();
  ranks.together([&] {
    batches->seek(progress.position);
    if (ranks.size() > 1 && corpus->isSampled())
      drawn[std::string(data) + "segmentation of the training text"] = hexOf(batches->hashOfPool());
  });
  if (ranks.size() > 1 && corpus->isSampled())
    compare(drawn);
}

// Prepares the folder before the first step of this part of the run, and loads the state from it when resuming.
void Trainer::beginFolder() {
  folder.identity = identityOf(model);
  folder.optimizer = options.optimizer;
  if (!options.resume || !folder.hasState()) { // before any file is created: invalid weights leave no folder behind
    initializeParameters(*model.engine, options.seed);
    if (!options.init.empty())
      initialize();
  }
  makeFolder(options.out);
  if (!folder.locked()) { // another run may have created it meanwhile
    folder.lock();
    checkFolder();
  }
  if (!options.trace.empty())
    checkWritable(options.trace);
  if (options.resume)
    folder.removePartial();
  if (options.resume && folder.hasState()) {
    resume();
    log.emplace(logFile(), progress.step, progress.records);
  } else if (options.resume) {
    bar.say(options.out + ": nothing was saved yet; the run begins at its first step");
    log.emplace(logFile(), 0, 0);
  } else {
    log.emplace(logFile());
  }
  if (!options.trace.empty() && options.traceFirst <= progress.step)
    throw Error(format("--trace-steps %lld:%lld: the run continues after step %lld; give later steps",
                       static_cast<long long>(options.traceFirst), static_cast<long long>(options.traceLast),
                       static_cast<long long>(progress.step)));
  progress.seed = options.seed;
  progress.data = corpus->totals().hash;
  progress.batchTokens = batchTokens;
  progress.accumulate = batchesOfStep();
  progress.groups = options.groups.text();
  progress.mixture = mixtureText();
  progress.sampling = samplingText();
  progress.metric = options.best;
  if (validation)
    progress.validation = hashOfValidation();
  if (options.tensorBoard)
    events.emplace(folder.file(eventsFile), progress.step, log->records());

  writeFile(folder.file("config.json"), configuration);
  if (!model.source->bytes().empty())
    writeFile(folder.file(folderVocabulary), model.source->bytes());
  if (model.target != model.source && !model.target->bytes().empty())
    writeFile(folder.file(folderTargetVocabulary), model.target->bytes());
}

// A readable list of many names: those that differ only in numbers are grouped.
std::string listOf(const std::vector<std::string> &names) {
  std::vector<std::pair<std::string, int>> kinds; // and their counts
  for (const std::string &name : names) {
    std::string kind;
    for (char c : name)
      if (c < '0' || c > '9')
        kind += c;
      else if (!kind.ends_with('*'))
        kind += '*';
    const auto known = std::ranges::find(kinds, kind, &std::pair<std::string, int>::first);
    if (known == kinds.end())
      kinds.emplace_back(kind, 1);
    else
      ++known->second;
  }
  std::string text;
  for (const auto &[kind, count] : kinds)
    text += (text.empty() ? "" : ", ") + kind + (count > 1 ? " (" + std::to_string(count) + ")" : "");
  return text;
}

// Replaces random weights by those of --init, by name, as far as they fit.
void Trainer::initialize() {
  ModelOptions of;
  of.model = options.init;
  const std::string file = RunFolder(options.init).isFolder() ? modelFiles(of).weights : options.init;
  const FittingWeights weights = loadFitting(*model.engine, file);
  bar.say(
      format("%s: loaded %zu of %zu parameters: ", file.c_str(), weights.loaded.size(), module().parameters.size()) +
      listOf(weights.loaded));
  if (!weights.left.empty())
    bar.say("not in it, and initialized at random: " + listOf(weights.left));
  if (!weights.unused.empty())
    bar.say("in it, but not parameters of this model: " + listOf(weights.unused));
  std::string unfit;
  for (const std::string &one : weights.unfit)
    unfit += (unfit.empty() ? "" : ", ") + one;
  if (!unfit.empty())
    std::fprintf(stderr, "%s: %s: of another shape or type, and initialized at random: %s\n",
                 nameOf(MessageKind::Warning), file.c_str(), unfit.c_str());
  for (const auto &[key, hash] : folder.identity)
    if (const auto theirs = weights.metadata.find(key);
        key.ends_with("_vocabulary") && theirs != weights.metadata.end() && theirs->second != hash)
      std::fprintf(stderr,
                   "%s: %s: was trained with another vocabulary (%s %s, the one given is %s); its embeddings are "
                   "those of other tokens\n",
                   nameOf(MessageKind::Warning), file.c_str(), key.c_str(), theirs->second.c_str(), hash.c_str());
}

void Trainer::resume() {
  std::string said;
  progress = folder.loadState(*model.engine, said);
  if (!said.empty())
    std::fprintf(stderr, "%s\n", said.c_str());
  auto same = [&](bool holds, const std::string &what) {
    if (!holds)
      throw Error(options.out + ": the run to resume was begun with " + what +
                  "; give the same, or train into a new folder");
  };
  same(progress.data == corpus->totals().hash, "other training data");
  same(progress.seed == options.seed, "--seed " + std::to_string(progress.seed));
  same(progress.batchTokens == batchTokens, "--batch-tokens " + std::to_string(progress.batchTokens));
  same(progress.accumulate == batchesOfStep(),
       ranks.size() == 1
           ? "--accumulate " + std::to_string(progress.accumulate)
           : std::to_string(progress.accumulate) + " batches per step (--accumulate times the processes)");
  if (progress.position.pool < 0) { // a state of an earlier version, which ordered all data at once
    same(batches->poolsOfEpoch() == 1, "an earlier version, which put data of this size in another order");
    progress.position.pool = 0;
  }
  same(progress.groups == options.groups.text(),
       progress.groups.empty() ? "no --freeze, --rate or --decay" : progress.groups);
  same(progress.mixture == mixtureText(),
       progress.mixture.empty() ? "no --corpus-weight or --corpus-temperature" : progress.mixture);
  same(progress.sampling == samplingText(),
       progress.sampling.empty() ? "no --sentencepiece-alphas" : progress.sampling);
  same(progress.metric == options.best, "--best " + progress.metric);
  same(!validation || progress.validation == 0 || progress.validation == hashOfValidation(),
       "other held-out text, with which the best validation so far cannot be compared");
  if (!batches->seek(progress.position))
    throw Error(options.out + ": the state is at batch " + std::to_string(progress.position.batch) + " of part " +
                std::to_string(progress.position.pool + 1) +
                " of an epoch, which this data does not have; it is damaged; start again in a new --out");
  savedStep = progress.step;
  changed = false;
  forgetMissing();
  folder.prune(std::numeric_limits<int64_t>::max() / 2, progress.step);
  if (progress.step % options.saveEvery == 0) // a run that was killed may not have got that far
    keepWeights();
  bar.say(format("resumed at step %lld", static_cast<long long>(progress.step)));
}

bool Trainer::lastEpochDone(Batches::Position position) const {
  return options.epochs >= 0 &&
         (position.epoch >= options.epochs || (position.epoch == options.epochs - 1 && batches->endsEpoch(position)));
}

// Whether the run needs the pool after the one that batches are taken from, as far as its end is known.
bool Trainer::goesBeyondPool() const {
  const int64_t left = batches->left();
  Batches::Position end = batches->position();
  end.batch += left;
  return !lastEpochDone(end) &&
         (options.steps < 0 || options.steps - progress.step - (upcoming.count > 0) > left / batchesOfStep());
}

bool Trainer::finished() const {
  return stopping || timeIsUp || (options.steps >= 0 && progress.step >= options.steps) ||
         lastEpochDone(progress.position) ||
         (options.earlyStop > 0 && progress.withoutImprovement >= options.earlyStop);
}

double Trainer::fractionDone() const {
  double fraction = 0;
  if (options.steps > 0)
    fraction = std::max(fraction, static_cast<double>(progress.step) / options.steps);
  if (options.minutes > 0)
    fraction = std::max(fraction, seconds() / (60 * options.minutes));
  if (options.epochs > 0)
    fraction =
        std::max(fraction, (progress.position.epoch + batches->fractionOfEpoch(progress.position)) / options.epochs);
  return fraction;
}

// Decides whether a signal, a log that cannot be written or the time limit ends the run, and whether a signal asks for
// a save. Ranks notice these at different times but must stop at the same step: all take the maximum over the ranks of
// one number that encodes stop, time limit and save. A run that ends saves anyway.
void Trainer::decide() {
  const bool late = writes() && options.minutes >= 0 && seconds() >= 60 * options.minutes;
  const bool stops = interrupted() || !unlogged.empty();
  const int decision = ranks.largest(4 * stops + 2 * late + saveRequested());
  stopping = decision / 4 != 0;
  timeIsUp = decision / 2 % 2;
  saveWanted |= decision % 2 != 0;
}

void Trainer::take(Group &group) {
  const Span span(model.engine->trace(), "data", "choose batches");
  group.end = batches->position();
  for (group.count = 0; group.count < static_cast<size_t>(batchesOfStep()) && !lastEpochDone(group.end);
       ++group.count) {
    if (group.count == group.batches.size())
      group.batches.emplace_back();
    group.batches[group.count] = batches->next();
    group.end = batches->position();
  }
}

// Returns false if the step failed and the run went back to an earlier one.
bool Trainer::step() {
  ++progress.step;
  changed = true;
  const Span span(model.engine->trace(), "step", "step", progress.step);
  if (upcoming.count > 0)
    std::swap(group, upcoming);
  else
    take(group);
  progress.position = group.end;
  // Also take the next step's batches, which are prepared while the device computes, but not across the end of an epoch
  // or pool, which must be handled first.
  upcoming.count = 0;
  if (batches->left() >= batchesOfStep())
    take(upcoming);
  if (goesBeyondPool())
    batches->planAhead();
  UpdateOptions settings{.optimizer = options.optimizer,
                         .settings = options.settings,
                         .clipNorm = options.clipNorm,
                         .smoothing = options.smoothing,
                         .distillation = options.distillation,
                         .alignment = options.alignmentWeight,
                         .seed = options.seed};
  settings.settings.rate = rate();
  UpdateResult result = update->run(group.span(), progress.step, settings, upcoming.span());
  if (!std::isfinite(result.loss) || !std::isfinite(result.norm)) {
    const Fault fault = whatIsNotFinite(result);
    if (!options.halveRate)
      stopNotFinite(fault);
    fallBack(fault);
    decide();
    return false;
  }
  window.loss += result.loss;
  window.nll += result.nll;
  window.alignment += result.alignment;
  window.norm += result.norm;
  window.labels += result.labels;
  ++window.steps;
  decide();
  return true;
}

// Records the next step, and the work that follows it, if it is one of --trace-steps. After the last of them the
// timeline is written.
void Trainer::traceNextStep() {
  if (!trace)
    return;
  if (progress.step >= options.traceLast)
    return finishTrace();
  Trace *const to = progress.step + 1 >= options.traceFirst ? &*trace : nullptr;
  model.engine->traceTo(to);
  ranks.traceTo(to);
}

// Writes the recorded part of the timeline, even if the run ended early.
void Trainer::finishTrace() {
  if (!trace)
    return;
  model.engine->traceTo(nullptr);
  ranks.traceTo(nullptr);
  std::vector<int64_t> beginnings;
  for (const std::string &beginning : ranks.gather(std::to_string(trace->beginning())))
    beginnings.push_back(std::stoll(beginning));
  const std::vector<std::string> all = ranks.gather(trace->json(
      ranks.rank(), ranks.nameOf(ranks.rank()), trace->beginning() - *std::ranges::min_element(beginnings)));
  ranks.together([&] {
    if (!writes())
      return;
    if (progress.step < options.traceFirst)
      std::fprintf(stderr, "%s: %s: the run ended before step %lld, so nothing was traced\n",
                   nameOf(MessageKind::Warning), options.trace.c_str(), static_cast<long long>(options.traceFirst));
    else
      writeTrace(options.trace, all);
    if (const int64_t count = trace->leftOut())
      std::fprintf(stderr, "%s: %s: %lld events were dropped because the trace buffer is full; trace fewer steps\n",
                   nameOf(MessageKind::Warning), options.trace.c_str(), static_cast<long long>(count));
  });
  trace.reset();
}

// Describes the failed step and where its first number that is not finite comes from: a kernel, found by running the
// step once more; or, on a device where that is not possible, or if each batch by itself is finite, the first parameter
// whose gradient is not.
Trainer::Fault Trainer::whatIsNotFinite(const UpdateResult &result) {
  Fault fault{format("step %lld: the loss is %g", static_cast<long long>(progress.step),
                     result.loss / static_cast<double>(std::max<int64_t>(result.labels, 1))),
              {{"not_finite_step", progress.step}}};
  const std::string gradient = badGradient();
  Json mine;
  if (const std::optional<Update::NotFinite> first = update->firstNotFinite())
    mine = {{"batch", first->batch},
            {"value", format("%g", first->value)},
            {"kernel", first->kernel},
            {"location", first->location}};
  Json found; // that of the earliest batch, as in a single process
  for (const std::string &text : ranks.gather(mine.dump()))
    if (const Json theirs = parseOrderedJson(text, "a rank");
        !theirs.is_null() && (found.is_null() || theirs["batch"] < found["batch"]))
      found = theirs;
  if (found.is_null()) {
    fault.what += gradient;
    return fault;
  }
  fault.record["kernel"] = found["kernel"];
  fault.record["location"] = found["location"];
  const std::string location = found["location"];
  fault.what += "; the first result that is not finite is " + found["value"].get<std::string>() + ", of the kernel " +
                found["kernel"].get<std::string>() + (location.empty() ? "" : " (" + location + " of model.json)");
  return fault;
}

// Describes the first parameter whose gradient is not finite; "" if all are.
std::string Trainer::badGradient() {
  update->gatherGradients();
  auto at = [&](int64_t i) {
    return module().type == DType::F64 ? static_cast<const double *>(model.engine->gradients())[i]
                                       : static_cast<const float *>(model.engine->gradients())[i];
  };
  for (const Parameter &parameter : module().parameters) {
    const int64_t count = elementsOf(parameter.shape);
    int64_t i = 0;
    while (i < count && std::isfinite(at(parameter.offset + i)))
      ++i;
    if (i < count) {
      const std::string place = placeOf(parameter);
      return format(", and the gradient of %s%s is %g at element %lld", parameter.name.c_str(),
                    place.empty() ? "" : (" (" + place + " of model.json)").c_str(), at(parameter.offset + i),
                    static_cast<long long>(i));
    }
  }
  return "";
}

// The location in model.json of the step that computes the parameter's gradient; "" if no step does.
std::string Trainer::placeOf(const Parameter &parameter) const {
  for (const Step &step : module().find(programs::lossAndGradients)->steps)
    for (const Place &place : step.buffers)
      if (place.kind == Place::Kind::Gradients && place.offset == parameter.offset * bytesOf(module().type))
        return step.location;
  return "";
}

// Ends the run. The state on disk is of an earlier step and stays valid.
void Trainer::stopNotFinite(const Fault &fault, const std::string &also) {
  std::string saved;
  if (writes()) {
    Json record = {{"step", progress.step}};
    record.update(fault.record);
    write(record);
    log->sync();
  }
  if (!writes()) {
  } else if (savedStep == progress.step - 1 && savedStep > 0) { // the saved state leads here at any rate
    if (const int64_t before = folder.revertState(); before >= 0)
      saved = "; what was saved at step " + std::to_string(savedStep) +
              " led to this and is discarded; what was saved at step " + std::to_string(before) + " is intact";
    else
      saved = "; what was saved at step " + std::to_string(savedStep) + " led to this";
  } else if (savedStep >= 0) {
    saved = "; what was saved at step " + std::to_string(savedStep) + " is intact";
  }
  throw CommonError(ranks.broadcast(fault.what + also + saved +
                                    "; train with a smaller --lr, a longer --warmup or a smaller --clip-norm" +
                                    (options.halveRate ? "" : ", or with --on-nan halve")));
}

// Goes back to the last saved state with half the learning rate, or to the state before if the last one led to the
// failure at any rate. Saves at once, so that a run that is stopped afterwards resumes from here.
void Trainer::fallBack(const Fault &fault) {
  constexpr double least = 1.0 / 1024;
  const int64_t failed = progress.step;
  const double scale = progress.rateScale / 2, soFar = seconds();
  if (scale < least || (savedStep == failed - 1 && !ranks.largest(writes() && folder.revertState() >= 0)))
    stopNotFinite(fault, scale < least ? ", after the rate was halved ten times" : "");
  ranks.together([&] {
    if (!writes())
      return;
    std::string said;
    progress = folder.loadState(*model.engine, said);
    if (!said.empty())
      std::fprintf(stderr, "%s\n", said.c_str());
    forgetMissing();
    // The records of the discarded steps stay in the log.
    progress.rateScale = scale;
    progress.seconds = soFar;
    started = Clock::now();
    Json record = {{"step", progress.step}};
    record.update(fault.record);
    record["rate_scale"] = scale;
    write(record);
    printMessage(MessageKind::Warning,
                 (fault.what + format("; went back to step %lld, and continues with %g times the rate of the schedule",
                                      static_cast<long long>(progress.step), scale))
                     .c_str());
  });
  shareRun();
  saveState();
  upcoming.count = 0;
  window = {};
}

// If the record cannot be written, because the disk is full or the file may not grow, the run does not end here: it
// saves first, since there may still be room for its state, and ends then.
void Trainer::write(const Json &record) try {
  if (log)
    log->write(record);
  if (events)
    events->write(record, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
} catch (const Error &error) {
  if (unlogged.empty())
    unlogged = error.what();
}

void Trainer::record() {
  if (window.steps == 0)
    return;
  const Span span(model.engine->trace(), "log", "record");
  double elapsed = std::max(std::chrono::duration<double>(Clock::now() - window.from).count(), 1e-9);
  double labels = static_cast<double>(std::max<int64_t>(window.labels, 1)), nll = window.nll / labels;
  Json record = {{"step", progress.step},
                 {"epoch", progress.position.epoch + 1},
                 {"loss", window.loss / labels},
                 {"nll", nll},
                 {"ppl", std::exp(nll)},
                 {"wps", window.labels / elapsed},
                 {"ups", window.steps / elapsed},
                 {"gnorm", window.norm / window.steps},
                 {"lr", rate()},
                 {"wall", seconds()},
                 {"tokens", window.labels}};
  if (isGuided)
    record["alignment"] = window.alignment / labels;
  write(record);
  bar.update(fractionDone(),
             format("step %lld  epoch %lld  loss %.3f  ppl %.2f  %.0f tokens/s", static_cast<long long>(progress.step),
                    static_cast<long long>(progress.position.epoch) + 1, window.loss / labels, std::exp(nll),
                    window.labels / elapsed));
  window = {};
}

// Validates at most once per step. A validation that is interrupted is repeated by the resumed run.
void Trainer::validate() {
  if (!validation || progress.validatedStep == progress.step)
    return;
  validateNow(false);
  decide();
}

void Trainer::validateNow(bool average) try {
  const Span span(model.engine->trace(), "validation", "validation");
  CorpusLoss loss;
  std::vector<std::string> translations;
  auto measure = [&] {
    loss = corpusLoss(*model.engine, *validation, batchTokens, options.smoothing, ranks);
    if (validSources)
      translations = translateTogether(model, *validSources, options.format, greedy(module()), ranks);
  };
  if (average)
    measure();
  else
    states->withAverage(measure);
  double value = loss.nll; // smaller is better
  Json record = {{"step", progress.step}, {"epoch", progress.position.epoch + 1}, {"valid_loss", loss.loss},
                 {"valid_nll", loss.nll}, {"valid_ppl", std::exp(loss.nll)},      {"best", false}};
  std::string line = format("step %lld  validation: loss %.4f  ppl %.3f", static_cast<long long>(progress.step),
                            loss.loss, std::exp(loss.nll));
  if (validSources) {
    const MetricSums sums = metricsOf(translations, validReferences);
    const double bleu = sums.bleu().value, chrf = sums.chrf().value, ter = sums.ter().value;
    record["bleu"] = bleu;
    record["chrf"] = chrf;
    record["ter"] = ter;
    line += format("  BLEU %.2f  chrF %.2f  TER %.2f", bleu, chrf, ter);
    if (options.best != "loss")
      value = options.best == "bleu" ? -bleu : options.best == "chrf" ? -chrf : ter;
    Json samples = Json::array();
    const size_t shown = std::min(sampleCount, validLines.size());
    for (size_t i = 0; i < shown; ++i) {
      size_t at = i * validLines.size() / shown;
      samples.push_back(
          {{"source", validLines[at]}, {"hypothesis", translations[at]}, {"reference", validReferences[at]}});
    }
    record["samples"] = samples;
  }
  const bool better = value < progress.best;
  record["best"] = better;
  record["wall"] = seconds();
  if (average)
    record["average"] = options.average;
  if (better) {
    if (ranks.largest(writes() && !folder.hasState())) // a folder never has weights without a state
      saveState();
    if (average)
      saveWeights("best.safetensors");
    else
      saveAveraged("best.safetensors");
    progress.best = value;
    progress.bestStep = progress.step;
    progress.withoutImprovement = 0;
  } else if (!average) {
    ++progress.withoutImprovement;
  }
  if (!average)
    keepBest(value);
  progress.validatedStep = progress.step;
  changed = true;
  write(record);
  bar.say(line + (better ? "  (best)" : ""));
  window.from = Clock::now();
} catch (const Interrupted &) {
  // The training loop saves and stops.
}

void Trainer::saveState() {
  const Span span(model.engine->trace(), "save", "save state");
  ranks.together([&] {
    try {
      states->checkFinite();
    } catch (const Error &error) {
      throw Error(format("step %lld: ", static_cast<long long>(progress.step)) + error.what() +
                  (savedStep >= 0 ? "; what was saved at step " + std::to_string(savedStep) + " is intact" : "") +
                  "; train with a smaller --lr or a longer --warmup, or Adam with a larger --adam-eps");
    }
  });
  Progress now = progress;
  if (writes()) {
    now.seconds = seconds();
    now.records = log->records();
    log->sync();
    if (events)
      events->sync();
  }
  folder.saveState(*states, now);
  if (writes() && options.keepBest > 0)
    folder.pruneBest(progress.keptBest);
  savedStep = progress.step;
  changed = false;
}

// Saves the weights that are validated: their moving average if there is one, or else the weights.
void Trainer::saveAveraged(const std::string &name) {
  states->withAverage([&] { saveWeights(name); });
}

void Trainer::saveWeights(const std::string &name) {
  if (writes())
    folder.saveWeights(*model.engine, name, progress.step);
}

// Keeps the weights if the validation is one of the best, for --keep-best. A state exists by then, because the first
// validation was the best so far. Weights that are displaced are deleted at the next save: until then, an interrupted
// run resumes from a state that refers to them.
void Trainer::keepBest(double value) {
  const auto most = static_cast<size_t>(options.keepBest);
  std::vector<KeptBest> &kept = progress.keptBest;
  const auto place = std::ranges::upper_bound(kept, value, {}, &KeptBest::value); // ties: the first is better
  if (!std::isfinite(value) || static_cast<size_t>(place - kept.begin()) >= most)
    return;
  kept.insert(place, {progress.step, value});
  kept.resize(std::min(kept.size(), most));
  saveAveraged(folder.bestFile(progress.step));
}

// After a state was loaded: forgets kept weights whose files are missing, and deletes those of later steps, which will
// be made again.
void Trainer::forgetMissing() {
  std::erase_if(progress.keptBest,
                [&](const KeptBest &kept) { return !exists(folder.file(folder.bestFile(kept.step))); });
  if (options.keepBest == 0)
    return;
  progress.keptBest.resize(std::min(progress.keptBest.size(), static_cast<size_t>(options.keepBest)));
  folder.pruneBest(progress.keptBest);
}

// Keeps the weights of the state on disk, for --keep and --average.
void Trainer::keepWeights() {
  if (!writes() || keptWeights() == 0 || progress.step == 0)
    return;
  if (const std::string name = folder.keptFile(progress.step); !exists(folder.file(name)))
    folder.saveWeights(*model.engine, name, progress.step);
  folder.prune(keptWeights(), progress.step);
}

// Saves the state first: a resumed run makes again anything that is interrupted after it.
void Trainer::save(bool requested) {
  const Span span(model.engine->trace(), "save", "save");
  if (changed)
    saveState();
  // The kept weights must not depend on how often a run is stopped or asked to save.
  if ((!stopping && !requested) || progress.step % options.saveEvery == 0)
    keepWeights();
  saveWeights("last.safetensors");
  if (options.optimizer->averages)
    saveAveraged("ema.safetensors");
}

// Writes the mean of the kept weights; the run itself continues from its own weights.
void Trainer::average() {
  const bool has = writes() && !folder.keptSteps().empty();
  if (options.average <= 1 || progress.averagedStep == progress.step || !ranks.largest(has))
    return;
  if (writes()) {
    folder.loadAverage(*model.engine, options.average);
    folder.saveWeights(*model.engine, "average.safetensors", progress.step);
  }
  shareWeights(*model.engine, ranks);
  bar.say(format("the mean of the last %lld saves is average.safetensors", static_cast<long long>(options.average)));
  if (validation) {
    validateNow(true);
    decide();
  } else {
    saveWeights("best.safetensors");
  }
  if (writes())
    loadWeights(*model.engine, folder.file("last.safetensors"));
  shareWeights(*model.engine, ranks);
  if (stopping)
    return;
  progress.averagedStep = progress.step;
  saveState();
}

void Trainer::end() {
  if (!stopping)
    validate();
  save();
  if (!validation && progress.averagedStep != progress.step)
    saveAveraged("best.safetensors");
  if (!stopping)
    average();
}

void Trainer::run() {
  const InterruptGuard guard;
  leaveTimeToSave(model.engine->pool().threads());
  decide();
  if (progress.step > 0 && progress.step % options.validEvery == 0) // its validation may be missing
    validate();
  while (!finished()) {
    traceNextStep();
    if (!step())
      continue;
    bool validating = progress.step % options.validEvery == 0, saving = progress.step % options.saveEvery == 0;
    if (progress.step % recordEvery == 0 || validating || saving || finished())
      record();
    if (validating && !stopping)
      validate();
    if (saving || (saveWanted && !stopping)) {
      save(!saving);
      if (saveWanted)
        bar.say(format("saved at step %lld, as requested by SIGUSR1", static_cast<long long>(progress.step)));
      saveWanted = false;
      decide();
    }
  }
  finishTrace();
  end();
  if (const std::string why = ranks.broadcast(unlogged); !why.empty())
    throw CommonError(why + format("; stopped at step %lld and saved; continue with --resume once there is room for it",
                                   static_cast<long long>(progress.step)));
  if (stopping)
    bar.say(format("stopped at step %lld and saved; continue with --resume", static_cast<long long>(progress.step)));
  else
    bar.say(format("done: %lld steps in %s; weights in %s", static_cast<long long>(progress.step),
                   duration(seconds()).c_str(), options.out.c_str()));
}

} // namespace

void train(const TrainOptions &options, const std::string &configuration) {
  const std::unique_ptr<Ranks> ranks = joinRanks(options.mpi);
  try {
    Trainer(options, configuration, *ranks).run();
  } catch (const CommonError &error) {
    if (ranks->size() == 1)
      throw;
    // The launcher kills the other ranks as soon as one exits with an error: exit only after the first rank has printed
    // the message for all.
    if (ranks->isFirst())
      printMessage(MessageKind::Error, oneLine(error.what()).c_str());
    ranks->largest(0);
    ranks->leave();
    std::_Exit(1);
  } catch (const std::exception &error) {
    if (ranks->size() == 1)
      throw;
    // The other ranks wait for this one, and would wait forever.
    printMessage(MessageKind::Error, (ranks->nameOf(ranks->rank()) + ": " + oneLine(error.what())).c_str());
    ranks->abort();
  }
}

} // namespace xfc
